"""`LLM.predict` for messages that are given, with the reply kept: traced as LlamaIndex's own.

LlamaIndex's makes messages out of a template and gives back a text. Here they are made already,
out of more than the template, and the reply's message is needed with all that it carries. What
tracers follow is the same: span, events with template and values, and the templating callback.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, TypeAlias

from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]
from llama_index.core.instrumentation.events.llm import LLMPredictEndEvent, LLMPredictStartEvent
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts import BasePromptTemplate

__all__ = ["Asked", "apredict", "as_parser_wants", "astream", "predict", "stream"]

Keep: TypeAlias = Callable[[ChatMessage], None]

_dispatcher = get_dispatcher(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """Messages to send, whose newest is ``template`` filled with ``values``."""

    template: BasePromptTemplate
    values: Mapping[str, Any]
    messages: list[ChatMessage]


def as_parser_wants(llm: LLM, messages: list[ChatMessage]) -> list[ChatMessage]:
    """With the instructions of the LLM's output parser, which stand in the system message or, where
    there is none, in the newest one. The given messages stay as they are."""
    if llm.output_parser is None:
        return messages
    copies = [message.model_copy(deep=True) for message in messages]
    return llm.output_parser.format_messages(copies)


def predict(llm: LLM, asked: Asked, keep: Keep) -> str:
    """The parsed text of the reply; ``keep`` gets its message."""
    text: str = _of(llm, _predict)(asked, keep)
    return text


async def apredict(llm: LLM, asked: Asked, keep: Keep) -> str:
    text: str = await _of(llm, _apredict)(asked, keep)
    return text


def stream(llm: LLM, asked: Asked, keep: Keep) -> Generator[str, None, None]:
    """The reply's text piece by piece; ``keep`` gets the message so far before each piece.

    Raises:
        NotImplementedError: the LLM has an output parser, which needs the whole text.
    """
    pieces: Generator[str, None, None] = _of(llm, _stream)(asked, keep)
    return pieces


async def astream(llm: LLM, asked: Asked, keep: Keep) -> AsyncGenerator[str, None]:
    pieces: AsyncGenerator[str, None] = await _of(llm, _astream)(asked, keep)
    return pieces


def _of(llm: LLM, traced: Any) -> Callable[..., Any]:
    """A function of this module as if it were the LLM's method: so its span is called."""
    method: Callable[..., Any] = traced.__get__(llm, type(llm))
    return method


def _begin(llm: LLM, asked: Asked) -> list[ChatMessage]:
    values = dict(asked.values)
    _dispatcher.event(LLMPredictStartEvent(template=asked.template, template_args=values))
    llm._log_template_data(asked.template, **values)
    return llm._extend_messages(asked.messages)


def _end(llm: LLM, reply: ChatMessage, keep: Keep) -> str:
    keep(reply)
    text = llm._parse_output(reply.content or "")
    _dispatcher.event(LLMPredictEndEvent(output=text))
    return text


def _check_streamable(llm: LLM) -> None:
    if llm.output_parser is not None:
        raise NotImplementedError("Output parser is not supported for streaming.")


def _named(name: str) -> Callable[[Callable[..., Any]], Any]:
    """A span of that name; only what it is bound to says whose."""

    def trace(function: Callable[..., Any]) -> Any:
        function.__name__ = name
        return _dispatcher.span(function)

    return trace


@_named("predict")
def _predict(llm: LLM, asked: Asked, keep: Keep) -> str:
    return _end(llm, llm.chat(_begin(llm, asked)).message, keep)


@_named("apredict")
async def _apredict(llm: LLM, asked: Asked, keep: Keep) -> str:
    return _end(llm, (await llm.achat(_begin(llm, asked))).message, keep)


@_named("stream")
def _stream(llm: LLM, asked: Asked, keep: Keep) -> Generator[str, None, None]:
    _check_streamable(llm)
    return _pieces(llm.stream_chat(_begin(llm, asked)), keep)


@_named("astream")
async def _astream(llm: LLM, asked: Asked, keep: Keep) -> AsyncGenerator[str, None]:
    _check_streamable(llm)
    return _apieces(await llm.astream_chat(_begin(llm, asked)), keep)


def _pieces(chunks: Generator[ChatResponse, None, None], keep: Keep) -> Generator[str, None, None]:
    with closing(chunks):
        for chunk in chunks:
            keep(chunk.message)
            yield chunk.delta or ""


async def _apieces(
    chunks: AsyncGenerator[ChatResponse, None], keep: Keep
) -> AsyncGenerator[str, None]:
    async with aclosing(chunks):
        async for chunk in chunks:
            keep(chunk.message)
            yield chunk.delta or ""
