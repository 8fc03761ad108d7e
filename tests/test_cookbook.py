"""Every notebook of the cookbook runs from top to bottom in a kernel of its own."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

COOKBOOK = Path(__file__).parent.parent / "cookbook"
NOTEBOOKS = sorted(COOKBOOK.glob("*.ipynb"))
pytestmark = [pytest.mark.cookbook, pytest.mark.timeout(900)]


def test_both_frameworks_have_a_notebook():
    text = "\n".join(path.read_text() for path in NOTEBOOKS)
    assert "cachefriendly_lc" in text
    assert "cachefriendly_li" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    assert any(cell.get("outputs") for cell in notebook.cells), "commit the notebook with outputs"
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    # Kernels listen on loopback; a path of the test folder keeps their connection files out of it.
    client.execute(env={**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path)})
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error", output
            assert refuted(output) == []


def refuted(output):
    """Lines that compare two runs ("the same answers: True") and found a difference."""
    lines = output.get("text", "").splitlines()
    return [line for line in lines if "same" in line and "False" in line]
