"""What a request allows the model to write: grammar and parser by tools, choice and schema."""

from __future__ import annotations

import hashlib
from array import array
from dataclasses import replace

from cachefriendly.config import Sampling
from cachefriendly.errors import RequestError
from cachefriendly.messages import Tool
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.prompt.control import ControlSet
from cachefriendly.request import ChatRequest
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.dialect import Dialect
from cachefriendly.tools.grammar import calls_or_answer, json_grammar
from cachefriendly.tools.stream import ReplyParser

__all__ = ["constraint_for", "parser_for", "with_stops"]


def constraint_for(request: ChatRequest, dialect: Dialect) -> GrammarSpec | None:
    """The grammar a request asks for, or None for free text.

    Raises:
        SchemaError: a schema cannot be turned into a grammar.
        RequestError: the choice names no offered tool.
        MissingExtra: a grammar is needed and llguidance is not installed.
    """
    choice, schema = request.tool_choice, request.response_schema
    what = "the response schema"
    if choice not in ("auto", "none"):
        # A tool that was chosen by name is called once.
        many = choice == "required" and request.parallel_tool_calls is True
        return dialect.call_grammar(_chosen(request.tools, choice), many=many)
    if schema is None:
        return None
    if choice == "none" or not request.tools:
        return json_grammar(schema, what=what)
    # An agent with a response format: each reply is a call, or the final answer.
    return calls_or_answer(dialect.call_grammar(request.tools), schema, what=what)


def parser_for(request: ChatRequest, dialect: Dialect, built: BuiltPrompt) -> ReplyParser:
    """A parser for the reply; call ids derive from the prompt, so a repeated call repeats them."""
    seed = hashlib.blake2b(array("q", built.ids).tobytes(), digest_size=12).hexdigest()
    opened = built.reasoning_open
    if not request.tools or request.tool_choice == "none":
        return dialect.text_parser(id_seed=seed, reasoning_open=opened)
    return dialect.parser(id_seed=seed, tools=request.tools, reasoning_open=opened)


def with_stops(sampling: Sampling, dialect: Dialect, controls: ControlSet) -> Sampling:
    """The same, with the tokens that end a reply in the dialect among the stop ids.

    A generation config may leave them out, and a model would run on behind its call.
    """
    stops = (controls.by_text.get(text) for text in dialect.stops)
    new = {stop for stop in stops if stop is not None} - set(sampling.stop_token_ids)
    return replace(sampling, stop_token_ids=(*sampling.stop_token_ids, *sorted(new)))


def _chosen(tools: tuple[Tool, ...], choice: object) -> tuple[Tool, ...]:
    if not tools:
        raise RequestError(f"tool_choice={choice!r} needs tools, but none were given")
    if choice == "required":
        return tools
    if not isinstance(choice, tuple):
        raise RequestError(
            f"tool_choice={choice!r} is unknown; use 'auto', 'none', 'required' or "
            "('name', tool_name)"
        )
    found = tuple(tool for tool in tools if tool.name == choice[1])
    if not found:
        names = ", ".join(tool.name for tool in tools)
        raise RequestError(f"tool_choice names {choice[1]!r}, but the tools are {names}")
    return found
