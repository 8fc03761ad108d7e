"""LlamaIndex's callbacks around streams that end when their reader leaves.

LlamaIndex wraps the generator of a streaming method in its own one and leaves closing the inner one
to the garbage collector, which waits for whoever keeps the exception, and for the event loop. Here
closing the outer generator closes the inner one at once, and with it the engine's call.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

__all__ = ["async_stream_callback", "stream_callback"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Callback: TypeAlias = Callable[[], Callable[[Callable[..., Any]], Callable[..., Any]]]
_Stream: TypeAlias = Generator[_T, None, None]
_AsyncStream: TypeAlias = AsyncGenerator[_T, None]
_AsyncMethod: TypeAlias = Callable[_P, Coroutine[Any, Any, _AsyncStream[_T]]]


def stream_callback(
    callback: _Callback,
) -> Callable[[Callable[_P, _Stream[_T]]], Callable[_P, _Stream[_T]]]:
    """`llm_chat_callback` or `llm_completion_callback` for a method that returns a generator."""

    def wrap(method: Callable[_P, _Stream[_T]]) -> Callable[_P, _Stream[_T]]:
        @wraps(method)
        def stream(*args: _P.args, **kwargs: _P.kwargs) -> _Stream[_T]:
            opened: list[_Stream[_T]] = []

            def start(*args: _P.args, **kwargs: _P.kwargs) -> _Stream[_T]:
                opened.append(method(*args, **kwargs))
                return opened[0]

            outer = callback()(start)(*args, **kwargs)
            return _both(outer, opened[0])

        return stream

    return wrap


def async_stream_callback(
    callback: _Callback,
) -> Callable[[_AsyncMethod[_P, _T]], _AsyncMethod[_P, _T]]:
    """`stream_callback` for an async method that returns an async generator."""

    def wrap(method: _AsyncMethod[_P, _T]) -> _AsyncMethod[_P, _T]:
        @wraps(method)
        async def stream(*args: _P.args, **kwargs: _P.kwargs) -> _AsyncStream[_T]:
            opened: list[_AsyncStream[_T]] = []

            async def start(*args: _P.args, **kwargs: _P.kwargs) -> _AsyncStream[_T]:
                opened.append(await method(*args, **kwargs))
                return opened[0]

            outer = await callback()(start)(*args, **kwargs)
            return _aboth(outer, opened[0])

        return stream

    return wrap


def _both(outer: _Stream[_T], inner: _Stream[_T]) -> _Stream[_T]:
    with closing(inner), closing(outer):
        yield from outer


async def _aboth(outer: _AsyncStream[_T], inner: _AsyncStream[_T]) -> _AsyncStream[_T]:
    async with aclosing(inner), aclosing(outer):
        async for chunk in outer:
            yield chunk
