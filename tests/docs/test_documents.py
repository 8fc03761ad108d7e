"""What the documents say is executed: code blocks run, and the map of modules has no gap."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = ("cachefriendly", "cachefriendly_lc", "cachefriendly_li")
MODULES = sorted(
    str(path.relative_to(ROOT))
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__init__.py"
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_run_in_order(document, tmp_path):
    """One script per document. A block that cannot run anywhere is marked ```python no-run."""
    # Its folder comes first on the path: a script named langchain.py would be that package.
    script = tmp_path / f"page_{document.stem}.py"
    script.write_text("\n".join(BLOCK.findall(document.read_text())))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("module", MODULES)
def test_architecture_names_every_module(module):
    """By its path inside the package (`engine/runner.py`), adapters with their package."""
    name = module.removeprefix("cachefriendly/")
    assert name in (ROOT / "ARCHITECTURE.md").read_text()


def test_architecture_names_no_module_that_is_gone():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paths = set(re.findall(r"`([\w/]+\.py)`", text))
    places = [ROOT, *(ROOT / package for package in PACKAGES)]
    gone = {path for path in paths if not any((place / path).is_file() for place in places)}
    assert gone == set()


@pytest.mark.parametrize(
    "document", [*DOCUMENTS, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
)
def test_links_inside_the_repository_lead_somewhere(document):
    text = document.read_text()
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (document.parent / target).exists(), target
