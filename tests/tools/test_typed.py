"""What type bare text is read as: the rules of `cachefriendly.tools.typed`, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from cachefriendly.tools.typed import allowed_types, argument_schema, typed_value

TEXT, WHOLE, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
ROOT: dict[str, Any] = {
    "$defs": {
        "unit": {"type": "string", "enum": ["1", "2"]},
        "size": {"anyOf": [WHOLE, NULL]},
    }
}
READ: dict[str, tuple[Any, str, Any]] = {
    "text alone is exact": (TEXT, ' 12\n"x" ', ' 12\n"x" '),
    "text by reference": ({"$ref": "#/$defs/unit"}, "1", "1"),
    "an enumeration of texts": ({"enum": ["1", "true"]}, "true", "true"),
    "a number that may be text, text first": ({"anyOf": [TEXT, WHOLE]}, "12", 12),
    "a number that may be text, number first": ({"anyOf": [WHOLE, TEXT]}, "12", 12),
    "several types in one word": ({"type": ["string", "integer"]}, "12", 12),
    "a fraction where text or an integer is meant": ({"anyOf": [TEXT, WHOLE]}, "1.5", "1.5"),
    "a whole float is an integer": (WHOLE, "3.0", 3.0),
    "an optional text": ({"anyOf": [TEXT, NULL]}, "null", None),
    "an optional text in Python's words": ({"anyOf": [TEXT, NULL]}, "None", None),
    "an optional text like a number": ({"anyOf": [TEXT, NULL]}, "12", "12"),
    "a number by reference": ({"$ref": "#/$defs/size"}, "12", 12),
    "truth in Python's words": ({"type": "boolean"}, "True", True),
    "an object in Python's words": ({"type": "object"}, "{'x': None}", {"x": None}),
    "text for an integer stays": (WHOLE, "seven", "seven"),
    "a truth for an integer stays": (WHOLE, "true", "true"),
    "quoted text beside text": ({"anyOf": [TEXT, WHOLE]}, '"a"', '"a"'),
    "quoted text where none is meant": (WHOLE, '"a"', "a"),
    "no schema, a number": (None, "12", 12),
    "no schema, text": (None, "word", "word"),
    "a choice that says nothing": ({"anyOf": [WHOLE, {}]}, "1.5", 1.5),
    "parts that agree": ({"allOf": [{"type": ["string", "integer"]}, TEXT]}, "12", "12"),
    "out of range": ({"type": "number"}, "1e999", "1e999"),
}


@pytest.mark.parametrize("name", READ)
def test_text_is_read_as_the_schema_says(name: str) -> None:
    schema, text, value = READ[name]
    read = typed_value(text, schema, ROOT)
    assert (read, type(read)) == (value, type(value))


def test_numbers_and_integers_meet_in_integers() -> None:
    assert allowed_types({"allOf": [{"type": "number"}, WHOLE]}, {}) == {"integer"}
    assert allowed_types({"allOf": [{"maximum": 3}, WHOLE]}, {}) == {"integer"}
    assert allowed_types({"anyOf": [WHOLE, {"maxLength": 3}]}, {}) == frozenset()


def test_an_argument_is_found_wherever_the_parameters_list_it() -> None:
    listed = {"properties": {"a": TEXT}}
    assert argument_schema(listed, "a") == TEXT
    assert argument_schema({"$ref": "#/$defs/args", "$defs": {"args": listed}}, "a") == TEXT
    assert argument_schema({"allOf": [listed, {"required": ["a"]}]}, "a") == TEXT
    either = {"anyOf": [listed, {"properties": {"a": WHOLE}}]}
    assert argument_schema(either, "a") == {"anyOf": [TEXT, WHOLE]}
    assert argument_schema({**listed, "additionalProperties": WHOLE}, "b") == WHOLE
    assert argument_schema({**listed, "additionalProperties": False}, "b") is None
