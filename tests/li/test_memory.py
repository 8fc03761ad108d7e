"""The memory and its chat store: diffs inside, LlamaIndex's contract outside."""

from __future__ import annotations

import copy
import json
import pickle
from itertools import pairwise

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.storage.chat_store import SimpleChatStore

from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer
from cachefriendly_li.chat_store import StateDiffChatStore
from cachefriendly_li.memory import default_memory

USER = ChatMessage(role="user", content="first message")
ANSWER = ChatMessage(
    role="assistant",
    blocks=[
        TextBlock(text="an answer\n"),
        ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={"b": 1, "a": 2}),
    ],
    additional_kwargs={"cachefriendly": "cf1:0:1"},
)
RESULT = ChatMessage(role="tool", content="3", additional_kwargs={"tool_call_id": "c1"})
ODD = ChatMessage(
    role="user",
    blocks=[TextBlock(text="a"), TextBlock(text="b")],
    additional_kwargs={"session_id": "s", "note": {"x": [1, None]}},
)


def words(text: str) -> list[str]:
    return text.split()


def buffer(*messages: ChatMessage, limit: int = 1000) -> ChatMemoryBuffer:
    return ChatMemoryBuffer.from_defaults(
        chat_history=list(messages), token_limit=limit, tokenizer_fn=words
    )


def turns(count: int, length: int) -> list[ChatMessage]:
    text = " ".join(["w"] * length)
    return [
        ChatMessage(role="user" if i % 2 == 0 else "assistant", content=text)
        for i in range(2 * count)
    ]


def test_it_is_a_llama_index_memory() -> None:
    assert isinstance(buffer(), StockChatMemoryBuffer)
    assert ChatMemoryBuffer.class_name() == "ChatMemoryBuffer"


async def test_the_contract_sync_and_async() -> None:
    memory = buffer(USER)
    memory.put(ANSWER)
    await memory.aput(RESULT)
    await memory.aput_messages([ODD])
    assert memory.get() == await memory.aget() == [USER, ANSWER, RESULT, ODD]
    assert memory.get_all() == await memory.aget_all()
    memory.set([USER])
    assert memory.get_all() == [USER]
    await memory.aset([USER, ANSWER])
    assert memory.get_all() == [USER, ANSWER]
    await memory.areset()
    assert memory.get_all() == memory.get() == []


@pytest.mark.parametrize("way", ["dict", "string", "json", "pickle", "deepcopy"])
def test_everything_survives_being_stored(way: str) -> None:
    memory = buffer(USER, ANSWER, RESULT, ODD, limit=77)
    copies = {
        "dict": lambda: ChatMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict()))),
        "string": lambda: ChatMemoryBuffer.from_string(memory.to_string()),
        "json": lambda: ChatMemoryBuffer.from_json(memory.to_json()),
        "pickle": lambda: pickle.loads(pickle.dumps(memory)),  # noqa: S301
        "deepcopy": lambda: copy.deepcopy(memory),
    }
    restored = copies[way]()
    assert restored.get_all() == [USER, ANSWER, RESULT, ODD]
    assert list(restored.get_all()[1].blocks[1].tool_kwargs) == ["b", "a"]
    assert restored.token_limit == 77
    restored.put(USER)
    assert len(memory.get_all()) == 4


def test_what_the_stock_class_wrote_is_read() -> None:
    old = {"token_limit": 9, "chat_history": [USER.model_dump(mode="json")]}
    assert ChatMemoryBuffer.from_dict(old).get_all() == [USER]
    assert set(old) == {"token_limit", "chat_history"}


def test_a_stock_chat_store_is_kept_and_can_be_stored() -> None:
    store = SimpleChatStore()
    memory = ChatMemoryBuffer.from_defaults(
        chat_history=[USER], chat_store=store, tokenizer_fn=words, chat_store_key="k"
    )
    memory.put(ANSWER)
    assert store.get_messages("k") == [USER, ANSWER]
    assert memory.log is None
    assert ChatMemoryBuffer.from_string(memory.to_string()).get_all() == [USER, ANSWER]


def test_a_turn_costs_one_diff_and_linear_bytes() -> None:
    memory = buffer()
    sizes = []
    for number in range(40):
        memory.put(ChatMessage(role="user", content=f"message {number:02}"))
        assert memory.log is not None
        sizes.append(len(memory.log.to_json_lines()))
    steps = {after - before for before, after in pairwise(sizes[10:])}
    assert len(memory.log.diffs) == 40
    assert len(steps) == 1


def test_setting_what_is_already_there_costs_nothing() -> None:
    memory = buffer(USER, ANSWER)
    assert memory.log is not None
    memory.set([USER, ANSWER, RESULT])
    assert len(memory.log.diffs) == 3
    memory.set([USER])
    assert [diff.kind for diff in memory.log.diffs[3:]] == ["message_removed"] * 2


def test_an_edit_in_place_is_seen_and_recorded() -> None:
    """Agents with a state prompt edit the newest user message they got from memory."""
    memory = buffer(USER.model_copy(deep=True))
    memory.get()[-1].blocks = [TextBlock(text="Current state: {}\n\nfirst message")]
    memory.put(ANSWER)
    assert memory.get_all()[0].content == "Current state: {}\n\nfirst message"
    assert memory.log is not None
    kinds = [diff.kind for diff in memory.log.diffs]
    assert kinds == ["message_added", "message_edited", "message_added"]
    restored = ChatMemoryBuffer.from_dict(memory.to_dict())
    assert restored.get_all() == memory.get_all()


def test_earlier_points_can_be_read() -> None:
    memory = buffer(USER, ANSWER)
    memory.reset()
    assert memory.log is not None
    assert [m.content for m in memory.log.at(1)] == ["first message", "an answer\n"]
    assert memory.log.at(2) == ()


def test_an_image_is_refused_when_it_is_put_in() -> None:
    memory = buffer(USER)
    with pytest.raises(RequestError, match=r"message 1 .*'image' block"):
        memory.put(ChatMessage(role="user", blocks=[ImageBlock(image=b"\x89PNG")]))
    assert memory.get_all() == [USER]


def test_arguments_are_those_of_the_stock_class() -> None:
    with pytest.raises(ValueError, match="Unexpected kwargs"):
        ChatMemoryBuffer.from_defaults(colour=1)
    with pytest.raises(ValueError, match="Token limit must be set"):
        ChatMemoryBuffer.from_defaults(token_limit=-1)
    assert ChatMemoryBuffer.from_defaults().token_limit == 3000


def test_the_default_memory_leaves_room_for_the_reply() -> None:
    llm = CacheFriendlyLLM(engine=ScriptedEngine("Hi", context_window=1000), max_new_tokens=400)
    memory = default_memory(llm)
    assert memory.token_limit == 600
    assert memory.tokenizer_fn("é") == list("é".encode())


def test_a_prefix_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="Initial token count exceeds token limit"):
        buffer(USER, limit=5).get(initial_token_count=6)


def test_a_small_window_keeps_whatever_fits() -> None:
    memory = buffer(*turns(3, 2), limit=9)
    assert memory.get() == memory.get_all()[2:]


def test_a_window_starts_with_a_turn() -> None:
    history = [*turns(1, 30), USER, ANSWER, RESULT, *turns(1, 30)[1:]]
    kept = buffer(*history, limit=64).get()
    assert kept[0].role == MessageRole.USER


def test_a_newest_turn_that_is_too_long_is_returned_whole() -> None:
    history = [*turns(2, 50), USER, ANSWER, ChatMessage(role="tool", content="w " * 500)]
    assert buffer(*history, limit=100).get() == history[4:]


def test_trims_are_rare_and_big() -> None:
    """Case 13: the whole window is never new on two consecutive turns."""
    memory = buffer(limit=400)
    before, trims = [], []
    for message in turns(60, 10):
        memory.put(message)
        window = memory.get()
        assert sum(len(words(m.content or "")) for m in window) <= 400
        trims.append(window[: len(before)] != before)
        before = window
    assert 0 < sum(trims) <= 6
    assert not any(a and b for a, b in pairwise(trims))


def test_the_store_follows_the_contract_of_chat_stores() -> None:
    store = StateDiffChatStore()
    assert store.get_messages("k") == []
    assert store.delete_messages("k") is None
    store.add_message("k", USER)
    store.add_message("k", ANSWER)
    store.add_message("k", ODD, idx=1)
    assert store.get_messages("k") == [USER, ODD, ANSWER]
    assert store.delete_message("k", 1) == ODD
    assert store.delete_message("k", 7) is None
    assert store.delete_last_message("k") == ANSWER
    assert store.get_keys() == ["k"]
    assert store.delete_messages("k") == [USER]
    assert store.delete_last_message("k") is None
    with pytest.raises(RequestError, match="'threads' is missing"):
        StateDiffChatStore.from_dict({"store": {}})


async def test_the_async_half_of_the_store() -> None:
    store = StateDiffChatStore()
    await store.aset_messages("k", [USER, ANSWER])
    await store.async_add_message("k", RESULT)
    assert await store.aget_messages("k") == [USER, ANSWER, RESULT]
    assert await store.adelete_last_message("k") == RESULT
    assert await store.adelete_message("k", 0) == USER
    assert await store.aget_keys() == ["k"]
    assert await store.adelete_messages("k") == [ANSWER]
