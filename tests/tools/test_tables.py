"""Every dialect's table: each case whole, in every split, cut off at every place."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from cachefriendly.messages import Tool
from cachefriendly.tools.dialect import DIALECTS, Dialect
from tests.tools.driver import Case, check, pieces_by_token

Table: TypeAlias = tuple[Dialect, tuple[Tool, ...], dict[str, Case]]

FOLDER = Path(__file__).parent / "cases"
TABLES = {
    info.name: importlib.import_module(f"tests.tools.cases.{info.name}")
    for info in pkgutil.iter_modules([str(FOLDER)])
}


def all_cases() -> Iterator[Any]:
    for name, table in TABLES.items():
        for title, case in table.CASES.items():
            yield pytest.param(table, case, id=f"{name}: {title}")


@pytest.mark.parametrize(("table", "case"), [*all_cases()])
def test_replies_are_read_as_the_table_says(table: Any, case: Case, demo_tokenizer: Any) -> None:
    def by_token(text: str, markers: Any) -> list[str]:
        return pieces_by_token(demo_tokenizer, text, markers)

    check(table.DIALECT, table.TOOLS, case, by_token, getattr(table, "HEADER", None))


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_has_a_table_with_the_usual_trouble(dialect: Dialect) -> None:
    found = {title for one, _, cases in TABLES for title in cases if one.name == dialect.name}
    wanted = {"text only", "one call", "nested", "unicode", "two in a row", "malformed"}
    assert wanted <= found
