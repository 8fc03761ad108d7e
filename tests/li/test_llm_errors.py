"""What cannot be meant is refused before anything runs; errors name the value and the way out."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock

from cachefriendly.errors import RequestError
from cachefriendly_li import CacheFriendlyLLM


@pytest.mark.parametrize(
    ("messages", "options", "error"),
    [
        ([], {}, "message list is empty"),
        ([ChatMessage("x", role="tool")], {}, "tool result for call None"),
        ([ChatMessage("x")], {"temperature": float("nan")}, "temperature=nan"),
        ([ChatMessage("x")], {"temperature": -1}, "temperature=-1"),
        ([ChatMessage("x")], {"max_tokens": 0}, "max_tokens=0"),
        ([ChatMessage("x")], {"frobnicate": 1}, "'frobnicate'"),
        ([ChatMessage("x " * 9000)], {}, "context window is 8192"),
        (
            [ChatMessage(role="user", blocks=[TextBlock(text="x"), ImageBlock(image=b"x")])],
            {},
            "block 1: a 'image' block",
        ),
        (
            [ChatMessage.model_construct(role="wizard", blocks=[], additional_kwargs={})],
            {},
            "unknown role 'wizard'",
        ),
    ],
)
async def test_bad_input_is_named_before_anything_runs(
    llm: CacheFriendlyLLM, messages: Any, options: dict[str, Any], error: str
) -> None:
    if "wizard" not in error:  # LlamaIndex's own events refuse that one first
        with pytest.raises(RequestError, match=error):
            llm.stream_chat(messages, **options)
        with pytest.raises(RequestError, match=error):
            await llm.achat(messages, **options)
    with pytest.raises(ValueError, match="wizard" if "wizard" in error else error):
        llm.chat(messages, **options)
