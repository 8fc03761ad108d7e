"""The public chat templates in ``.templates/`` (`make templates`), a tokenizer for each."""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any

import pytest

from cachefriendly.testing.template_tokenizer import template_tokenizer

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".templates"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jinja"))
MISSING = "no .templates/: run `make templates`"
EXCEPTIONS: dict[str, dict[str, Any]] = tomllib.loads(
    (HERE / "exceptions.toml").read_text(encoding="utf-8")
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per template (``dated``: per template that prints the date).

    Without templates it is one test that is skipped and says how to get them.
    """
    missing = pytest.param("none", marks=pytest.mark.skip(reason=MISSING))
    dated = [name for name in NAMES if "strftime_now" in source_of(name)]
    for argument, names in (("name", NAMES), ("dated", dated)):
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, names or [missing])


@functools.cache
def source_of(name: str) -> str:
    return (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")


@functools.cache
def tokenizer_of(name: str) -> Any:
    return template_tokenizer(source_of(name))


def exception(name: str, kind: str) -> Any:
    """What ``exceptions.toml`` says of a template, None for nothing."""
    return EXCEPTIONS.get(name, {}).get(kind)
