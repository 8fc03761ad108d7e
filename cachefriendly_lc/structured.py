"""`with_structured_output`: the bound model and the parser behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_core.language_models import LanguageModelInput
from langchain_core.output_parsers import (
    BaseOutputParser,
    JsonOutputKeyToolsParser,
    JsonOutputParser,
    PydanticOutputParser,
    PydanticToolsParser,
)
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.pydantic import is_basemodel_subclass

from cachefriendly.errors import RequestError
from cachefriendly.openai_forms import tool_choice_to_openai
from cachefriendly_lc.tools import openai_tools, schema_format

if TYPE_CHECKING:
    from cachefriendly_lc.chat_model import ChatCacheFriendly

__all__ = ["StructuredMethod", "StructuredModel", "structured_model"]

StructuredMethod: TypeAlias = Literal["json_schema", "function_calling", "json_mode"]

_METHODS: tuple[str, ...] = ("json_schema", "function_calling", "json_mode")


@dataclass(frozen=True, slots=True)
class StructuredModel:
    """A model bound to answer in a form, and the parser of that form."""

    bound: Runnable[LanguageModelInput, Any]
    parser: BaseOutputParser[Any]

    def parsed(self) -> Runnable[LanguageModelInput, Any]:
        return self.bound | self.parser

    def with_raw(self) -> Runnable[LanguageModelInput, Any]:
        """Also returns the message, and a parsing error as a value."""
        parsed = RunnablePassthrough.assign(
            parsed=itemgetter("raw") | self.parser, parsing_error=lambda _: None
        )
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        safe = parsed.with_fallbacks([failed], exception_key="parsing_error")
        return RunnableMap(raw=self.bound) | safe


def structured_model(
    model: ChatCacheFriendly,
    schema: dict[str, Any] | type | None,
    method: StructuredMethod,
    *,
    strict: bool | None,
    options: Mapping[str, Any],
) -> StructuredModel:
    """Bind ``schema``, and ``options`` of the calls, to ``model``.

    ``json_mode`` is held to the schema as ``json_schema`` is: elsewhere it promises less. It alone
    goes without a schema, and is then held to some JSON object.
    """
    if method not in _METHODS:
        raise RequestError(f"method={method!r} is unknown; use one of {', '.join(_METHODS)}")
    if schema is None:
        if method != "json_mode":
            raise RequestError(f"method={method!r} needs a schema; only json_mode goes without")
        anything = model.bind(response_format={"type": "json_object"}, **options)
        return StructuredModel(anything, JsonOutputParser())
    openai_tool = openai_tools([schema], strict=strict)[0]
    traced = {"kwargs": {"method": method, "strict": strict}, "schema": openai_tool}
    bind = {**options, "ls_structured_output_format": traced}
    # Any: a class that passes this test is what the pydantic parsers take.
    pydantic: Any = schema if isinstance(schema, type) and is_basemodel_subclass(schema) else None
    parser: BaseOutputParser[Any]
    if method == "function_calling":
        name = openai_tool["function"]["name"]
        choice = tool_choice_to_openai(("name", name))
        bound = model.bind_tools([schema], tool_choice=choice, strict=strict, **bind)
        if pydantic:
            parser = PydanticToolsParser(tools=[pydantic], first_tool_only=True)
        else:
            parser = JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
        return StructuredModel(bound, parser)
    response_format = schema_format(schema, strict=strict)
    parser = PydanticOutputParser(pydantic_object=pydantic) if pydantic else JsonOutputParser()
    return StructuredModel(model.bind(response_format=response_format, **bind), parser)
