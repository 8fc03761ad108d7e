"""Pictures, sound, video and files are refused by name, wherever they stand."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core import exceptions
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_lc import ChatCacheFriendly

BLOCKS: dict[str, Any] = {
    "image_url": {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    "image": {"type": "image", "base64": "aGk=", "mime_type": "image/png"},
    "audio": {"type": "audio", "base64": "aGk=", "mime_type": "audio/wav"},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
    "video": {"type": "video", "url": "https://example.org/cat.mp4"},
    "file": {"type": "file", "base64": "aGk=", "mime_type": "application/pdf"},
    "document": {"type": "document", "source": {"type": "base64", "data": "aGk="}},
}


def among(block: Any, role: str) -> list[Any]:
    """A conversation whose second or third message holds the block behind a text."""
    content: Any = [{"type": "text", "text": "Look at this."}, block]
    if role == "human":
        return [SystemMessage("Be brief."), HumanMessage(content)]
    call = {"name": "look", "args": {}, "id": "c1"}
    asked = [HumanMessage("Look."), AIMessage("", tool_calls=[call])]
    return [*asked, ToolMessage(content, tool_call_id="c1")]


@pytest.mark.parametrize("role", ["human", "tool"])
@pytest.mark.parametrize("kind", BLOCKS)
def test_what_is_no_text_is_named(kind: str, role: str) -> None:
    engine = ScriptedEngine("Hello.")
    messages = among(BLOCKS[kind], role)
    place = len(messages) - 1
    shown = kind.removeprefix("input_")  # langchain-core turns OpenAI's form into its own
    with pytest.raises(RequestError, match=f"message {place}: .*'{shown}'.* reads text only") as e:
        ChatCacheFriendly(engine=engine).invoke(messages)
    assert isinstance(e.value, exceptions.LangChainException)
    assert "aGk=" not in str(e.value)
    assert not engine.requests


def test_the_profile_says_so() -> None:
    profile = ChatCacheFriendly(engine=ScriptedEngine("Hello.")).profile
    assert profile is not None
    for sense in ("image_inputs", "audio_inputs", "video_inputs", "pdf_inputs", "image_url_inputs"):
        assert profile.get(sense) is False, sense
    assert profile["text_inputs"]
