"""Runs the notebooks and stores their outputs: ``python cookbook/build.py [NOTEBOOK ...]``.

Edit a notebook, run this, look at the difference, commit both. A notebook whose outputs would hold
an error, a warning or a path of the machine is left as it was.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

COOKBOOK = Path(__file__).parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# A notebook shows no widgets here, and readers need not be told so.
WITHOUT_WIDGETS = {"PYTHONWARNINGS": "ignore:IProgress not found"}


def build(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            notebook, timeout=600, coalesce_streams=True, resources=resources
        )
        client.execute(env={**os.environ, **WITHOUT_WIDGETS})
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({})
        for output in cell.get("outputs", ()):
            check(output, cell.source)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def check(output: Any, source: str) -> None:
    text = str(output)
    unwanted = [str(place) for place in (Path.home(), COOKBOOK.parent.resolve(), sys.prefix)]
    if output.get("name") == "stderr" or any(place in text for place in unwanted):
        raise SystemExit(f"this output does not belong into a notebook:\n{source}\n{text}")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(COOKBOOK.glob("*.ipynb")):
        build(Path(name))
        print(f"{Path(name).name}: done")
