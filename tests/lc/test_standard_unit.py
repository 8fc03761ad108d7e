"""LangChain's own standard unit tests of chat models."""

from __future__ import annotations

from typing import Any

from langchain_tests.unit_tests import ChatModelUnitTests

from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly


class TestChatCacheFriendly(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[ChatCacheFriendly]:
        return ChatCacheFriendly

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"engine": ScriptedEngine("Hello.")}
