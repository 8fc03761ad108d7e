"""Writes docs/templates.md: what the public chat templates do to kept tokens. Needs .templates/."""

from __future__ import annotations

from pathlib import Path

from cachefriendly.templates_view import COLUMNS, row_of, surveyed, templates_in

ROOT = Path(__file__).parents[1]
HEAD = """\
# Chat templates

What {count} public chat templates do to tokens that are already known, made by
`python docs/template_table.py` from `.templates/` (`make templates`). Each gets a tool conversation
of four model calls: a question, two calls with their results, an answer, one more question. The
generated ids are never what the tokenizer makes of their text. The last three columns are the share
of known tokens that the next prompt starts with, under each history policy (`docs/history.md`).

`cachefriendly templates PATH` prints the same for a model of yours or a folder of `.jinja` files.

Stable under appending: {stable} of {count}. Templates that refuse the conversation: {errors}.
The dates that {time} of them print are frozen per conversation.

"""


def main() -> None:
    findings = list(surveyed(templates_in(ROOT / ".templates")))
    head = HEAD.format(
        count=len(findings),
        stable=sum(finding.stable for finding in findings),
        errors=sum(bool(finding.error) for finding in findings),
        time=sum(finding.prints_time for finding in findings),
    )
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(row_of, findings)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    (ROOT / "docs" / "templates.md").write_text(head + table + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
