"""The root package: cheap to import, and every listed name is there."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cachefriendly

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", cachefriendly.__all__)
def test_every_listed_name_loads(name):
    assert getattr(cachefriendly, name) is not None
    assert name in dir(cachefriendly)


def test_listed_typed_and_lazy_names_agree():
    """A type checker reads the TYPE_CHECKING block, Python reads the table: they must not drift."""
    tree = ast.parse(Path(cachefriendly.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    lazy = {name: f"cachefriendly.{module}" for name, module in cachefriendly._HOME.items()}
    assert typed == lazy
    assert {*lazy, "__version__"} == set(cachefriendly.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Engin'"):
        cachefriendly.Engin  # noqa: B018


def test_importing_the_root_loads_nothing_heavy():
    code = (
        "import sys, cachefriendly; cachefriendly.Message; cachefriendly.EngineConfig;"
        "print({'torch', 'transformers', 'jinja2'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_version_is_the_same_everywhere():
    assert PYPROJECT["project"]["version"] == cachefriendly.__version__
    assert importlib.metadata.version("cachefriendly") == cachefriendly.__version__


@pytest.mark.parametrize("name", ["cachefriendly", "cachefriendly_lc", "cachefriendly_li"])
def test_packages_are_marked_as_typed(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    assert (Path(next(iter(spec.submodule_search_locations))) / "py.typed").is_file()


def test_pins_fit_the_ranges_and_name_no_machine():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in pins)
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in pins}
    extras = PYPROJECT["project"]["optional-dependencies"].values()
    wanted = [*PYPROJECT["project"]["dependencies"], *(name for extra in extras for name in extra)]
    missing = {re.split(r"[<>=\[]", name)[0] for name in wanted} - pinned
    assert missing == set()
