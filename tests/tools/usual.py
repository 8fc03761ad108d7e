"""The usual cases of a dialect, made from the texts in which it writes one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cachefriendly.messages import Tool
from tests.tools.driver import Case

__all__ = ["TOOLS", "usual_cases"]

TOOLS = (
    Tool(
        "add",
        "Adds.",
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer"},
                "b": {"type": "number"},
                "text": {"type": "string"},
                "flag": {"type": "boolean"},
                "deep": {"type": "object"},
            },
        },
    ),
    Tool("now", "The time.", {"type": "object", "properties": {}}),
)

Write = Callable[[str, dict[str, Any]], str]


def usual_cases(
    write: Write, between: str, broken: str, *, reasoning: tuple[str, str] | None = None
) -> dict[str, Case]:
    """``write`` gives the whole text of one call, ``between`` stands between two, ``broken`` is
    one that cannot be read; ``reasoning`` are the texts around it.
    """
    add: tuple[str, dict[str, Any]] = ("add", {"a": 1, "b": 2.5})
    deep: dict[str, Any] = {"deep": {"x": [[], {"y": None}, [{"z": "]}"}]]}, "flag": False}
    odd: dict[str, Any] = {"text": "你好 é 🎉 \u2028 'x' = 3"}
    like: dict[str, Any] = {"text": "12"}
    one = write(*add)
    cases = {
        "text only": Case("Hello, {there}.\n", "Hello, {there}.\n"),
        "one call": Case(one, calls=(add,)),
        "no arguments": Case(write("now", {}), calls=(("now", {}),)),
        "nested": Case(write("add", deep), calls=(("add", deep),)),
        "unicode": Case(write("add", odd), calls=(("add", odd),)),
        "text that looks like a number": Case(write("add", like), calls=(("add", like),)),
        "two in a row": Case(f"{one}{between}{write('now', {})}", calls=(add, ("now", {}))),
        "text before": Case(f"Let me see.\n{one}", "Let me see.", (add,)),
        "malformed": Case(broken, invalid=("",)),
    }
    if reasoning is not None:
        cases["reasoning first"] = Case(
            f"{reasoning[0]}Hm.{reasoning[1]}\n{one}", calls=(add,), reasoning="Hm."
        )
        cases["reasoning that the prompt opened"] = Case(
            f"\nHm. {reasoning[1]}So:\n{one}", "So:", (add,), reasoning="Hm.", opened=True
        )
    return cases
