"""`LLMMetadata` that asks for the context window only when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.base.llms.types import LLMMetadata
from llama_index.core.bridge.pydantic import PrivateAttr, model_serializer

__all__ = ["EngineMetadata"]

_WINDOW = "context_window"


class EngineMetadata(LLMMetadata):
    """LlamaIndex asks in its event loop whether an LLM chats and calls functions; the window is in
    the checkpoint's configuration, and reading that may import torch first.
    """

    _window: Callable[[], int] = PrivateAttr()

    @classmethod
    def of(cls, window: Callable[[], int], **values: Any) -> EngineMetadata:
        """``values`` are the other fields; ``window`` is asked at most once."""
        metadata = cls(**values)
        metadata._window = window
        del metadata.__dict__[_WINDOW]  # so that reading it comes to `__getattr__`
        return metadata

    def __getattr__(self, name: str) -> Any:
        if name != _WINDOW:
            return super().__getattr__(name)  # type: ignore[misc]
        value = self.__dict__[_WINDOW] = self._window()
        return value

    @model_serializer(mode="wrap")
    def _whole(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        self.context_window  # noqa: B018
        return handler(self)
