"""How findings about chat templates are shown: a row of cells for each, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cachefriendly.errors import RequestError
from cachefriendly.testing.template_survey import POLICIES, Finding, survey_template
from cachefriendly.testing.template_tokenizer import template_tokenizer

__all__ = ["COLUMNS", "findings_table", "row_of", "surveyed", "templates_in"]

COLUMNS = ("chat template", "dialect", "structure", "appending", *POLICIES)
_WIDTH_OF_A_FILE = 140


def templates_in(path: Path) -> list[tuple[str, Any]]:
    """Name and tokenizer of every ``.jinja`` file of a directory, or of one file.

    Raises:
        RequestError: there is none.
    """
    files = [path] if path.is_file() else sorted(path.glob("*.jinja"))
    if not files:
        raise RequestError(f"{path} holds no .jinja file")
    return [(file.stem, template_tokenizer(file.read_text(encoding="utf-8"))) for file in files]


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


def findings_table(findings: Iterable[Finding]) -> str:
    """The table as text: rich's where it is installed, else plain columns."""
    rows = [row_of(finding) for finding in findings]
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return "\n".join("  ".join(row) for row in [COLUMNS, *rows])
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.caption = "exact, template, append: share of known tokens kept in a tool conversation"
    for column in COLUMNS:
        table.add_column(column, justify="right" if column in POLICIES else "left")
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table, markup=False)
    return capture.get().rstrip()


def _watched(named: Sequence[tuple[str, Any]]) -> Iterable[tuple[str, Any]]:
    if len(named) < 3:
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
