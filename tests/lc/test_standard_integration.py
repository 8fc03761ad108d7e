"""LangChain's own standard integration tests of chat models, on the demo model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_tests.integration_tests import ChatModelIntegrationTests

from cachefriendly.demo import demo_engine as shared_engine
from cachefriendly.testing import scripted_replies
from cachefriendly_lc import ChatCacheFriendly
from tests.lc.usage import cache_read

if TYPE_CHECKING:
    from cachefriendly import Engine

LOOP = (
    '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Rome"}}\n</tool_call>',
    "It's sunny.",
)
# What a reply of a test needs, in tokens: a forced call its name and arguments, an object its keys.
ROOM = {"unicode": 48, "tool": 40, "few_shot": 40, "agent_loop": 40, "structured": 16, "json": 16}


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
class TestChatCacheFriendly(ChatModelIntegrationTests):
    """Everything that is not multimodal; vision, PDF and audio are refused (test_multimodal)."""

    @property
    def chat_model_class(self) -> type[ChatCacheFriendly]:
        return ChatCacheFriendly

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"engine": shared_engine(), "model": "demo", "temperature": 0, "max_tokens": 4}

    @pytest.fixture
    def model(self, request: pytest.FixtureRequest) -> ChatCacheFriendly:
        """As the base class makes it, with replies as short as the test allows."""
        test = request.node.originalname
        room = {"max_tokens": next((n for word, n in ROOM.items() if word in test), 4)}
        given = getattr(request, "param", None) or {}
        standard = {**self.standard_chat_model_params, **self.chat_model_params}
        return self.chat_model_class(**{**standard, **room, **given})

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        """Another name of the same weights."""
        return shared_engine().model_name

    @property
    def supported_usage_metadata_details(self) -> dict[Literal["invoke", "stream"], list[Any]]:
        details = ["cache_read_input", "cache_creation_input"]
        return {"invoke": details, "stream": details}

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        return self._second_turn(stream)

    def invoke_with_cache_creation_input(self, *, stream: bool = False) -> AIMessage:
        return self._second_turn(stream)

    def _second_turn(self, stream: bool) -> AIMessage:
        """The second reply of a conversation: some of its prompt is reused, some is new."""
        model = self.chat_model_class(**self.chat_model_params)
        options: dict[str, Any] = {"cache_namespace": str(uuid4()), "max_tokens": 4}
        history: list[Any] = [HumanMessage("Hello")]
        history += [model.invoke(history, **options), HumanMessage("Go on.")]
        if stream:
            reply = reduce(add, model.stream(history, **options))
        else:
            reply = model.invoke(history, **options)
        details = reply.usage_metadata["input_token_details"]
        assert cache_read(reply) > 0
        assert details["cache_creation"] > 0
        assert sum(details.values()) == reply.usage_metadata["input_tokens"]
        return reply

    @pytest.fixture(autouse=True)
    def agent_that_calls(
        self, request: pytest.FixtureRequest, demo_engine: Engine
    ) -> Iterator[None]:
        """The agent loop forces no call, and 135M parameters rarely call unasked: by script."""
        if request.node.originalname != "test_agent_loop":
            yield
            return
        tokenizer = demo_engine.tokenizer
        ids = [[*tokenizer(reply).input_ids, tokenizer.eos_token_id] for reply in LOOP]
        with scripted_replies(*ids):
            yield
