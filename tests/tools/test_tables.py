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
MODULES = [
    importlib.import_module(f"tests.tools.cases.{info.name}")
    for info in pkgutil.iter_modules([str(FOLDER)])
]


def tables(module: Any) -> list[Table]:
    """A module has one table as DIALECT, TOOLS, CASES, or several as TABLES."""
    several: list[Table] | None = getattr(module, "TABLES", None)
    return several or [(module.DIALECT, module.TOOLS, module.CASES)]


TABLES = [table for module in MODULES for table in tables(module)]


def all_cases() -> Iterator[Any]:
    for module in MODULES:
        header = getattr(module, "HEADER", None)
        for dialect, tools, cases in tables(module):
            for title, case in cases.items():
                name = f"{module.__name__.rpartition('.')[2]}: {dialect.name}: {title}"
                yield pytest.param(dialect, tools, case, header, id=name)


@pytest.mark.parametrize(("dialect", "tools", "case", "header"), [*all_cases()])
def test_replies_are_read_as_the_table_says(
    dialect: Dialect, tools: tuple[Tool, ...], case: Case, header: Any, demo_tokenizer: Any
) -> None:
    def by_token(text: str, markers: Any) -> list[str]:
        return pieces_by_token(demo_tokenizer, text, markers)

    check(dialect, tools, case, by_token, header)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_has_a_table_with_the_usual_trouble(dialect: Dialect) -> None:
    found = {title for one, _, cases in TABLES for title in cases if one.name == dialect.name}
    wanted = {"text only", "one call", "nested", "unicode", "two in a row", "malformed"}
    assert wanted <= found
