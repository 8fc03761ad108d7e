"""Text held to the rules of a JSON Schema, as a terminal of lark: narrower, never wider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachefriendly.errors import SchemaError
from cachefriendly.tools.patterns import whole_text

__all__ = ["ANY_TEXT", "text_terminal", "without"]

ANY_TEXT = "/(?s:.)*/"
_DATE = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_HOST = rf"{_LABEL}(\.{_LABEL}){{0,6}}"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_WORD = "[A-Za-z0-9_+-]+"
_PATH = r"[A-Za-z0-9._~!$&'()*+,;=:@-]"
_FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": "P([0-9]{1,9}W|[0-9]{1,9}D(T[0-9]{1,9}H([0-9]{1,9}M)?)?|T[0-9]{1,9}[HMS])",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "email": rf"{_WORD}(\.{_WORD}){{0,3}}@{_HOST}",
    "hostname": _HOST,
    "ipv4": rf"{_BYTE}(\.{_BYTE}){{3}}",
    "ipv6": "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}",
    "uri": (
        rf"[a-z][a-z0-9+.-]{{0,20}}:\/\/{_HOST}(:[0-9]{{1,4}})?(\/{_PATH}*)*"
        rf"(\?({_PATH}|[\/?])*)?(#({_PATH}|[\/?])*)?"
    ),
}


def text_terminal(schema: Mapping[str, Any], *, what: str) -> str:
    """An expression of a lark terminal for the texts that a schema's keywords for text admit.

    Raises:
        SchemaError: the pattern of ``what`` cannot be followed.
    """
    rules = []
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if least or most is not None:
        rules.append(f"/(?s:.){{{int(least)},{'' if most is None else int(most)}}}/")
    if "pattern" in schema:
        try:
            rules.append(f"/{whole_text(schema['pattern'])}/")
        except ValueError as error:
            raise SchemaError(
                f"{what}: pattern={schema['pattern']!r} cannot be enforced: {error}; simplify it, "
                "or leave the choice of the tool to the model"
            ) from None
    if schema.get("format") in _FORMATS:
        rules.append(f"/{_FORMATS[schema['format']]}/")
    return " & ".join(rules) or ANY_TEXT


def without(terminal: str, *expressions: str) -> str:
    """The texts of a terminal that none of the regular expressions matches as a whole."""
    return " & ".join([f"({terminal})", *(f"~/{text}/" for text in expressions)])
