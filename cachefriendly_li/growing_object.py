"""An object of structured output while its arguments are still generated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, Generic

from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.program.utils import create_flexible_model
from llama_index.core.types import Model
from pydantic import ValidationError
from pydantic_core import from_json

from cachefriendly_li.stream import RAW_DELTA
from cachefriendly_li.tools import tool_selections

__all__ = ["GrowingObject"]

# What dialects whose calls are JSON write before the arguments, behind the name.
_ARGUMENTS: Final = re.compile(r'"(?:arguments|parameters)"\s*:\s*(?=\{)')


class GrowingObject(Generic[Model]):
    """Owned by one stream. An unfinished object may lack fields, and its last text may grow.

    It is of the output class as soon as it is valid, before that of LlamaIndex's flexible form of
    it. In dialects whose arguments are no JSON object there is only the whole one.
    """

    def __init__(self, output_cls: type[Model]) -> None:
        self._output_cls = output_cls
        self._flexible = create_flexible_model(output_cls)
        self._raw = ""
        self._begin: int | None = None  # where the arguments begin in it
        self._last: dict[str, Any] = {}

    def read(self, chunk: ChatResponse) -> Iterator[Any]:
        """What a chunk of `stream_chat_with_tools` makes of it, if that is anything new."""
        if chunk.raw is not None:  # the last chunk: it has the usage, and every call whole
            for call in tool_selections(chunk.message):
                yield self._output_cls.model_validate(call.tool_kwargs)
        elif text := chunk.additional_kwargs.get(RAW_DELTA):
            self._raw += text
            yield from self._grown()

    def _grown(self) -> Iterator[Any]:
        if self._begin is None:
            found = _ARGUMENTS.search(self._raw)
            if found is None:
                return
            self._begin = found.end()
        try:
            read = from_json(self._raw[self._begin :], allow_partial="trailing-strings")
        except ValueError:  # text behind them: the call is closed, and the whole object comes now
            return
        if not isinstance(read, dict) or read == self._last:
            return
        self._last = read
        try:
            yield self._output_cls.model_validate(read)
        except ValidationError:
            yield self._flexible.model_validate(read)
