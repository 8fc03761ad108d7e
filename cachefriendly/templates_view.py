"""How findings about chat templates are shown: a row of cells for each, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cachefriendly.errors import RequestError
from cachefriendly.testing.template_survey import POLICIES, Finding, survey_template
from cachefriendly.testing.template_tokenizer import template_tokenizer

__all__ = ["COLUMNS", "findings_table", "row_of", "surveyed", "template_of_model", "templates_in"]

COLUMNS = ("chat template", "dialect", "structure", "appending", *POLICIES)
_WIDTH_OF_A_FILE = 140
_MANY = 3


def templates_in(path: Path) -> list[tuple[str, Any]]:
    """Name and tokenizer of every ``.jinja`` file of a directory, or of one file.

    Raises:
        RequestError: there is none.
    """
    if not path.exists():
        raise RequestError(f"there is no file {path}")
    files = [path] if path.is_file() else sorted(path.glob("*.jinja"))
    if not files:
        raise RequestError(f"{path} holds no .jinja file")
    return [(file.stem, template_tokenizer(file.read_text(encoding="utf-8"))) for file in files]


def template_of_model(model: str) -> Any:
    """The tokenizer of a local model, or of one in the hub (its cache, when offline).

    Raises:
        RequestError: there is none to be had.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError) as error:
        if Path(model).exists():
            raise RequestError(f"{model} holds neither a tokenizer nor a .jinja file") from error
        raise RequestError(
            f"{model!r} is no local path, and the hub or its cache gave no tokenizer of that name; "
            f"name a folder, a .jinja file or a model that was downloaded"
        ) from error


def surveyed(named: Sequence[tuple[str, Any]]) -> Iterator[Finding]:
    """Findings one by one, behind a progress bar on stderr when there are many and a terminal."""
    for name, tokenizer in _watched(named):
        yield survey_template(name, tokenizer)


def row_of(finding: Finding) -> tuple[str, ...]:
    """One cell per column of `COLUMNS`."""
    if finding.error:
        return (finding.name, "", "", f"refuses: {finding.error}", *("" for _ in POLICIES))
    appending = "stable"
    if finding.rewritten:
        where = finding.first_rewritten
        appending = finding.rewritten + (f" (message {where})" if where is not None else "")
    structure = f"{finding.control_tokens} control tokens" if finding.control_tokens else "text"
    shares = (f"{finding.share(policy):.0%}" for policy in POLICIES)
    return (finding.name, finding.dialect, structure, appending, *shares)


def findings_table(findings: Sequence[Finding]) -> str:
    """The table as text: rich's where it is installed, else plain columns."""
    rows = [row_of(finding) for finding in findings]
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return "\n".join("  ".join(row) for row in [COLUMNS, *rows]) + _notes(findings)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.caption = "{}: share of known tokens kept in a tool conversation".format(
        ", ".join(POLICIES)
    )
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in POLICIES else "left")
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table, markup=False)
    return capture.get().rstrip() + _notes(findings)


def _notes(findings: Sequence[Finding]) -> str:
    """What the conversation had to do without, where few enough templates are shown to care."""
    if len(findings) > _MANY:
        return ""
    lines = [
        f"{x.name} has no form of its own for: {', '.join(x.left_out)}"
        for x in findings
        if x.left_out
    ]
    return "".join(f"\n{line}" for line in lines)


def _watched(named: Sequence[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    if len(named) <= _MANY:
        return named
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return named
    console = Console(stderr=True)
    if not console.is_terminal:
        return named
    return track(named, description="Templates", console=console, transient=True)
