"""Every way to call a chat model, each giving the whole reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import reduce
from operator import add
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage

__all__ = ["FORMS"]

Form: TypeAlias = Callable[[Any, Any, Any], Awaitable[AIMessage]]


async def _invoke(model: Any, messages: Any, config: Any) -> AIMessage:
    return model.invoke(messages, config)


async def _ainvoke(model: Any, messages: Any, config: Any) -> AIMessage:
    return await model.ainvoke(messages, config)


async def _stream(model: Any, messages: Any, config: Any) -> AIMessage:
    return reduce(add, model.stream(messages, config))


async def _astream(model: Any, messages: Any, config: Any) -> AIMessage:
    return reduce(add, [chunk async for chunk in model.astream(messages, config)])


async def _batch(model: Any, messages: Any, config: Any) -> AIMessage:
    return model.batch([messages], [config])[0]


async def _abatch(model: Any, messages: Any, config: Any) -> AIMessage:
    return (await model.abatch([messages], [config]))[0]


async def _batch_as_completed(model: Any, messages: Any, config: Any) -> AIMessage:
    ((_, reply),) = model.batch_as_completed([messages], config)
    return reply


async def _abatch_as_completed(model: Any, messages: Any, config: Any) -> AIMessage:
    ((_, reply),) = [pair async for pair in model.abatch_as_completed([messages], config)]
    return reply


async def _astream_events_v2(model: Any, messages: Any, config: Any) -> AIMessage:
    events = [event async for event in model.astream_events(messages, config, version="v2")]
    return events[-1]["data"]["output"]


async def _stream_events_v3(model: Any, messages: Any, config: Any) -> AIMessage:
    return model.stream_events(messages, config, version="v3").output


async def _astream_events_v3(model: Any, messages: Any, config: Any) -> AIMessage:
    return await (await model.astream_events(messages, config, version="v3")).output


FORMS: dict[str, Form] = {
    form.__name__.lstrip("_"): form
    for form in (
        _invoke,
        _ainvoke,
        _stream,
        _astream,
        _batch,
        _abatch,
        _batch_as_completed,
        _abatch_as_completed,
        _astream_events_v2,
        _stream_events_v3,
        _astream_events_v3,
    )
}
