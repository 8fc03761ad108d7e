"""Schema checks, against the jsonschema package where it is installed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.errors import RequestError, SchemaError
from cachefriendly.messages import Tool
from cachefriendly.tools.schema import check_schema, check_tools
from cachefriendly.tools.schema_rewrite import grammar_schema

BAD: list[tuple[Any, str, str]] = [
    (None, "", "must be a JSON object, not NoneType"),
    ([], "", "must be a JSON object, not list"),
    ({"type": "strng"}, "$", "use one of object, array"),
    ({"type": []}, "$", "use one of"),
    ({"properties": ["a"]}, "$", "must be an object of schemas"),
    ({"properties": {"a": "string"}}, "$.properties.a", "must be an object or a bool"),
    ({"properties": {"a": {"type": "int"}}}, "$.properties.a", "type='int'"),
    ({"items": {"anyOf": []}}, "$.items", "at least one"),
    ({"anyOf": [{}, {"minLength": -1}]}, "$.anyOf[1]", "minLength=-1 must be an integer"),
    ({"required": "a"}, "$", "required='a' must be a list of different strings"),
    ({"required": ["a", "a"]}, "$", "different strings"),
    ({"enum": []}, "$", "at least one entry"),
    ({"minimum": "1"}, "$", "must be a number"),
    ({"minimum": True}, "$", "must be a number"),
    ({"multipleOf": 0}, "$", "above 0"),
    ({"pattern": 1}, "$", "must be a string"),
    ({"uniqueItems": "yes"}, "$", "must be true or false"),
    ({"default": {1, 2}}, "", "not plain JSON"),
    ({"minimum": float("nan")}, "", "not plain JSON"),
    ({"properties": {1: {}}}, "$", "must be an object of schemas"),
    ({"$ref": "#/$defs/A"}, "$", "leads nowhere"),
    ({"$ref": "https://example.com/a"}, "$", "leads nowhere"),
]


@pytest.mark.parametrize(("schema", "path", "reason"), BAD)
def test_a_bad_schema_is_refused_with_owner_place_and_reason(
    schema: Any, path: str, reason: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        check_schema(schema, what="tool 'f'")
    text = str(caught.value)
    assert text.startswith("tool 'f': ")
    assert f"at {path}" in text if path else True
    assert reason in text


def test_a_good_schema_passes() -> None:
    check_schema({}, what="x")
    check_schema({"x-anything": 1, "nullable": True, "format": "weird"}, what="x")
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "v": {"$ref": "#/$defs/a~1b"}}}
    check_schema({**tree, "$defs": {"a/b": {"type": ["integer", "null"]}}}, what="x")


def test_endless_nesting_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(SchemaError, match=r"nested|plain JSON"):
        check_schema(schema, what="x")


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([Tool("", "", {})], "name='' must be a non-empty string"),
        ([Tool("f", "", {}), Tool("f", "", {})], "two tools are named 'f'"),
        ([Tool("f", "", {"type": "array"})], "arguments are an object"),
        (
            [Tool("f", "", {"properties": {"a": {"type": 1}}})],
            r"tool 'f': schema at \$.properties.a",
        ),
    ],
)
def test_bad_tools_are_refused(tools: list[Tool], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        check_tools(tools)


KEYWORDS = st.fixed_dictionaries({}, optional={
    "type": st.sampled_from(["object", "string", "int", 3, ["string"], ["x"]]),
    "required": st.sampled_from([["a"], [1], "a", [], ["a", "a"]]),
    "minLength": st.sampled_from([0, 2, -1, "1", 1.5, 2.0, True]),
    "minimum": st.sampled_from([0, 1.5, "1", None]),
    "multipleOf": st.sampled_from([1, 0, -1, 0.1]),
    "enum": st.sampled_from([[1], "a", [None, "a"]]),
    "uniqueItems": st.sampled_from([True, 0]),
    "title": st.sampled_from(["t", 1]),
    "format": st.sampled_from(["date", 1]),
    "default": st.sampled_from([None, {}]),
})  # fmt: skip
SCHEMAS = st.recursive(
    KEYWORDS | st.booleans() | st.sampled_from(["string", 1]),
    lambda inner: st.fixed_dictionaries({}, optional={
        "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        "items": inner, "anyOf": st.lists(inner, max_size=2), "not": inner,
        "additionalProperties": inner, "$defs": st.dictionaries(st.just("d"), inner, max_size=1),
        "type": st.sampled_from(["object", "nothing"]),
    }),
    max_leaves=6,
)  # fmt: skip


@given(st.builds(lambda schema: {"items": schema}, SCHEMAS))
def test_the_check_agrees_with_the_metaschema(schema: dict[str, Any]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        good = True
    except jsonschema.SchemaError:
        good = False
    if good:
        check_schema(schema, what="x")
    else:
        with pytest.raises(SchemaError):
            check_schema(schema, what="x")


def test_objects_with_listed_properties_are_closed() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string", "format": "path"}}}
    free = {"type": "object", "additionalProperties": {"type": "integer"}}
    schema = {"type": "object", "properties": {"x": inner, "y": free, "z": {"type": "object"}}}
    out = grammar_schema({**schema, "x-guidance": {"lenient": True}})
    assert out["additionalProperties"] is False
    assert "x-guidance" not in out
    assert out["properties"]["x"]["additionalProperties"] is False
    assert out["properties"]["x"]["properties"]["a"] == {"type": "string"}
    assert out["properties"]["y"] == free
    assert "additionalProperties" not in out["properties"]["z"]
    assert "additionalProperties" not in grammar_schema({"type": "object"})
    assert grammar_schema({"type": "object"}, close_root=True)["additionalProperties"] is False


def test_parts_that_must_hold_together_stay_open() -> None:
    part = {"type": "object", "properties": {"a": {}}}
    both = grammar_schema({"allOf": [part, {"$ref": "#/$defs/b"}], "$defs": {"b": part}})
    assert both["allOf"][0] == part
    assert both["$defs"]["b"] == part
    either = grammar_schema({"anyOf": [part, {"type": "null"}]})
    assert either["anyOf"][0]["additionalProperties"] is False
