"""Tools that the tests offer."""

from __future__ import annotations

from langchain_core.tools import tool

__all__ = ["add", "get_weather"]


@tool
def get_weather(city: str) -> str:
    """Look up the weather in a city."""
    return f"It is sunny and 21 degrees in {city}."


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
