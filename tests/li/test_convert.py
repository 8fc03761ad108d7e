"""Messages and responses, there and back."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from cachefriendly.errors import RequestError
from cachefriendly.events import CacheReport, ChatResult
from cachefriendly.messages import InvalidToolCall, Message, ToolCall
from cachefriendly_li.convert import (
    message_from_llama_index,
    message_to_llama_index,
    messages_from_llama_index,
    to_chat_response,
    to_completion_response,
)

_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
_calls = st.builds(ToolCall, st.text(min_size=1), st.dictionaries(st.text(), _json), st.text())
_invalid = st.builds(InvalidToolCall, st.text(), st.text(), st.none() | st.text(), st.text())
_assistant = st.builds(
    Message,
    role=st.just("assistant"),
    content=st.text(),
    tool_calls=st.lists(_calls, max_size=3).map(tuple),
    invalid_tool_calls=st.lists(_invalid, max_size=2).map(tuple),
    name=st.none() | st.text(),
    reasoning=st.none() | st.text(),
    handle=st.none() | st.text(),
)
_others = st.builds(Message, role=st.sampled_from(["system", "user"]), content=st.text())
_results = st.builds(
    Message,
    role=st.just("tool"),
    content=st.text(),
    tool_call_id=st.none() | st.text(),
    name=st.none() | st.text(),
)


@given(_assistant | _others | _results)
def test_a_message_survives_the_way_through_llama_index(message: Message) -> None:
    assert message_from_llama_index(message_to_llama_index(message)) == message


@given(_assistant)
def test_a_message_survives_llama_index_storing_it_as_json(message: Message) -> None:
    stored = json.loads(json.dumps(message_to_llama_index(message).model_dump(mode="json")))
    assert message_from_llama_index(ChatMessage.model_validate(stored)) == message


def test_arguments_keep_the_order_in_which_the_model_wrote_them() -> None:
    call = ToolCall("f", {"b": 1, "a": 2}, "call_1")
    back = message_from_llama_index(message_to_llama_index(Message("assistant", "", (call,))))
    assert list(back.tool_calls[0].arguments) == ["b", "a"]


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("system", "system"),
        ("developer", "system"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("chatbot", "assistant"),
        ("model", "assistant"),
        ("tool", "tool"),
        ("function", "tool"),
    ],
)
def test_every_role_of_llama_index_is_known(role: str, expected: str) -> None:
    assert (
        message_from_llama_index(ChatMessage(role=MessageRole(role), content="x")).role == expected
    )


def test_an_unknown_role_is_named() -> None:
    message = ChatMessage.model_construct(role="wizard", blocks=[], additional_kwargs={})
    with pytest.raises(RequestError, match="message 1: unknown role 'wizard'"):
        messages_from_llama_index([ChatMessage("hi"), message])


@pytest.mark.parametrize(
    ("block", "kind"),
    [(ImageBlock(image=b"\x89PNG"), "image"), (AudioBlock(audio=b"x", format="wav"), "audio")],
)
def test_what_is_not_text_is_refused_by_block_and_place(block: Any, kind: str) -> None:
    message = ChatMessage(role="user", blocks=[TextBlock(text="look"), block])
    with pytest.raises(RequestError, match=rf"message 0 \(user\), block 1: a '{kind}' block"):
        messages_from_llama_index([message])


def test_calls_and_thoughts_belong_to_the_assistant() -> None:
    for block in (ToolCallBlock(tool_name="f"), ThinkingBlock(content="hm")):
        with pytest.raises(RequestError, match="block 0"):
            messages_from_llama_index([ChatMessage(role="user", blocks=[block])])


def test_a_cache_point_holds_no_content() -> None:
    point = CachePoint(cache_control=CacheControl(type="ephemeral"))
    assert (
        message_from_llama_index(
            ChatMessage(role="user", blocks=[TextBlock(text="a"), point])
        ).content
        == "a"
    )


def test_text_blocks_are_joined_as_llama_index_joins_them() -> None:
    message = ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")])
    assert message_from_llama_index(message).content == message.content == "a\nb"


@pytest.mark.parametrize("as_object", [False, True])
def test_calls_in_the_openai_form_are_read(as_object: bool) -> None:
    function: Any = {"name": "add", "arguments": '{"a": 1}'}
    call: Any = {"id": "call_1", "type": "function", "function": function}
    if as_object:
        call = SimpleNamespace(id="call_1", function=SimpleNamespace(**function))
    message = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})
    assert message_from_llama_index(message).tool_calls == (ToolCall("add", {"a": 1}, "call_1"),)


def test_blocks_win_over_the_openai_form_that_repeats_them() -> None:
    extras = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
    block = ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"x": 1})
    message = ChatMessage(role="assistant", blocks=[block], additional_kwargs=extras)
    assert message_from_llama_index(message).tool_calls == (ToolCall("f", {"x": 1}, "c"),)


@pytest.mark.parametrize("text", ["", "  ", "{}"])
def test_a_call_without_arguments(text: str) -> None:
    block = ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs=text)
    message = message_from_llama_index(ChatMessage(role="assistant", blocks=[block]))
    assert message.tool_calls == (ToolCall("f", {}, "c"),)


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_arguments_that_are_no_object_stay_as_data(text: str) -> None:
    block = ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs=text)
    message = message_from_llama_index(ChatMessage(role="assistant", blocks=[block]))
    assert message.tool_calls == ()
    assert message.invalid_tool_calls[0].raw == text
    assert message.invalid_tool_calls[0].name == "f"


def test_a_response_carries_handle_and_usage() -> None:
    message = Message("assistant", "hello", handle="cf1:ab:cd")
    result = ChatResult(message, "stop", CacheReport(50, 40, 10, 7, 16), (1,), (2,))
    response = to_chat_response(result, "demo")
    assert response.message.content == "hello"
    assert response.message.additional_kwargs == {"cachefriendly": "cf1:ab:cd"}
    assert response.raw == {
        "usage": {
            "prompt_tokens": 50,
            "completion_tokens": 7,
            "total_tokens": 57,
            "prompt_tokens_details": {"cached_tokens": 40},
        },
        "finish_reason": "stop",
        "model": "demo",
    }
    completion = to_completion_response(response)
    assert completion.text == "hello"
    assert completion.raw == response.raw
    assert completion.additional_kwargs == {"cachefriendly": "cf1:ab:cd"}


def test_an_empty_reply_has_text() -> None:
    """Chat engines print ``str(message.content)``, which must not be 'None'."""
    assert message_to_llama_index(Message("assistant", "")).content == ""
