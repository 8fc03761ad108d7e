"""Rewrites the module table of ARCHITECTURE.md from the first line of each module's docstring."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- modules: made by `make docs` -->", "<!-- end of modules -->"
# Reading order: the path of a request, then what stands beside it.
GROUPS = (
    ("cachefriendly", "Words everybody uses, and the command line"),
    ("cachefriendly/state", "Memory as diffs"),
    ("cachefriendly/tools", "Token text to tool calls and back"),
    ("cachefriendly/tools/dialects", "Tool dialects"),
    ("cachefriendly/prompt", "Messages to token ids"),
    ("cachefriendly/kv", "The live tensors"),
    ("cachefriendly/store", "The kept tensors"),
    ("cachefriendly/engine", "The loop"),
    ("cachefriendly/testing", "Test doubles and oracles, shipped"),
    ("cachefriendly_lc", "LangChain adapter"),
    ("cachefriendly_li", "LlamaIndex adapter"),
)


def first_line(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text())) or ""
    return doc.split("\n\n")[0].replace("\n", " ").strip()


def table(folder: str, title: str) -> str:
    rows = [f"### {title}", "", "| module | what it is |", "|---|---|"]
    for path in sorted((ROOT / folder).glob("*.py")):
        if path.name == "__init__.py":
            continue
        name = str(path.relative_to(ROOT)).removeprefix("cachefriendly/")
        line = first_line(path).replace("|", "\\|")
        rows.append(f"| `{name}` | {line} |")
    return "\n".join(rows)


def main() -> None:
    document = ROOT / "ARCHITECTURE.md"
    text = document.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    tables = "\n\n".join(table(folder, title) for folder, title in GROUPS)
    document.write_text(f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}")


if __name__ == "__main__":
    main()
