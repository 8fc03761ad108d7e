"""How the demo looks in a terminal: a spinner while it works, then a table per conversation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cachefriendly.demo_run import Comparison, DemoCall
from cachefriendly.errors import MissingExtra

try:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
    from rich.table import Table
    from rich.text import Text
except ImportError as error:
    raise MissingExtra("rich", "demo") from error

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["comparison_table", "print_comparison", "watch_calls"]

# Where the output goes to a file or a log, tables need a width of their own.
_WIDTH_OF_A_FILE = 100


class _Calls(ProgressColumn):
    """What runs, and which model call it is at."""

    def render(self, task: Task) -> Text:
        engine, before = task.fields["engine"], task.fields["before"]
        if engine is None:
            return Text(task.description)
        return Text(f"{task.description}, call {len(engine.reports()) - before + 1}")


@contextlib.contextmanager
def watch_calls(title: str, engine: Engine | None = None) -> Iterator[None]:
    """Show on stderr what runs until the block ends; one line where there is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"{title} ...", highlight=False)
        yield
        return
    columns = SpinnerColumn(), _Calls(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        before = len(engine.reports()) if engine else 0
        progress.add_task(title, total=None, engine=engine, before=before)
        yield


def print_comparison(comparison: Comparison) -> None:
    """The table, and one sentence that says what it shows."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    console.print(comparison_table(comparison))
    console.print(_verdict(comparison), highlight=False)
    console.print()


def comparison_table(comparison: Comparison) -> Table:
    table = Table(
        title=comparison.title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.caption = "wait: seconds to the first token; no reuse: the same run with reuse=False"
    table.caption_justify = "left"
    table.add_column("call", justify="right")
    # The one column that may shrink: its cells are cut, the others stay whole.
    table.add_column("the model says", max_width=60)
    for name in ("prompt", "prefill\nreuse", "prefill\nno reuse", "wait\nreuse", "wait\nno reuse"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, call in enumerate(comparison.calls, start=1):
        table.add_row(str(number), *_row(call))
    table.add_section()
    table.add_row("", "total", *_totals(comparison), style="bold")
    return table


def _row(call: DemoCall) -> tuple[str | Text, ...]:
    counts = call.cold.prompt_tokens, call.warm.prefilled_tokens, call.cold.prefilled_tokens
    # Text: what a model says is not markup.
    return (
        Text(" ".join(call.text.split()), no_wrap=True, overflow="ellipsis"),
        *(f"{count:,}" for count in counts),
        *(f"{report.ttft_s:.2f}" for report in (call.warm, call.cold)),
    )


def _totals(comparison: Comparison) -> tuple[str, ...]:
    total = comparison.total
    counts = (
        total("cold", "prompt_tokens"),
        *(total(run, "prefilled_tokens") for run in ("warm", "cold")),
    )
    return (
        *(f"{count:,.0f}" for count in counts),
        *(f"{total(run, 'ttft_s'):.2f}" for run in ("warm", "cold")),
    )


def _verdict(comparison: Comparison) -> str:
    first = comparison.total("cold", "ttft_s") / max(comparison.total("warm", "ttft_s"), 1e-9)
    if not comparison.identical:
        return "[bold red]The outputs differ: this is a bug, please report it.[/]"
    return (
        f"[bold green]{comparison.saved_share:.0%} of the prefill saved[/], first tokens "
        f"{first:.1f} times earlier, outputs identical."
    )
