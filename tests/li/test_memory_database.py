"""`Memory`: where its blocks go, what is replayed, and how its queue is flushed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import Field
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.memory import FactExtractionMemoryBlock, StaticMemoryBlock, VectorMemoryBlock
from llama_index.core.memory import Memory as StockMemory
from llama_index.core.memory.memory import BaseMemoryBlock, InsertMethod
from llama_index.core.schema import TextNode
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryResult

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, Memory
from tests.li.memory_puts import put_all

ARCHIVED = MessageStatus.ARCHIVED


class Board(BaseMemoryBlock[str]):
    """Says what stands on it, and keeps what it was given."""

    text: str = ""
    got: list[list[ChatMessage]] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **kwargs: Any) -> str:
        return self.text.format(n=len(messages or []), **kwargs)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.got.append(messages)


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def reply(text: str) -> ChatMessage:
    return ChatMessage(role="assistant", content=text, additional_kwargs={"cachefriendly": "cf1:h"})


def memory_with(*blocks: Any, **options: Any) -> Memory:
    settings = {"tokenizer_fn": str.split, "token_limit": 1000, "session_id": "s", **options}
    return Memory.from_defaults(memory_blocks=list(blocks), **settings)


def texts(messages: Sequence[ChatMessage]) -> list[str]:
    return [(message.content or "").replace("\n", "") for message in messages]


FACTS = "<memory><facts>{}</facts></memory>"


def test_blocks_go_before_the_newest_question_and_stay_there() -> None:
    facts = Board(name="facts", text="tea")
    memory = memory_with(facts)
    memory.put(user("q1"))
    first = memory.get()
    assert texts(first) == [FACTS.format("tea") + "q1"]
    memory.put(reply("a1"))
    memory.put(user("q2"))
    assert texts(memory.get()) == [FACTS.format("tea") + "q1", "a1", "q2"]  # nothing new to say
    facts.text = "coffee"
    assert texts(memory.get())[-1] == "q2"  # a turn is given its memory once
    memory.put(reply("a2"))
    memory.put(user("q3"))
    third = memory.get()
    assert third[:1] == first
    assert texts(third)[2:] == ["q2", "a2", FACTS.format("coffee") + "q3"]
    assert texts(memory.get_all()) == ["q1", "a1", "q2", "a2", "q3"]


def test_only_what_changed_is_said_and_an_empty_block_is_said_to_be_so() -> None:
    one, two = Board(name="one", text="1"), Board(name="two", text="2")
    memory = memory_with(one, two)
    memory.put(user("q1"))
    assert texts(memory.get()) == ["<memory><one>1</one><two>2</two></memory>q1"]
    two.text = "22"
    memory.put_messages([reply("a1"), user("q2")])
    assert texts(memory.get())[-1] == "<memory><two>22</two></memory>q2"
    two.text = ""
    memory.put_messages([reply("a2"), user("q3")])
    assert texts(memory.get())[-1] == "<memory><two></two></memory>q3"
    memory.put_messages([reply("a3"), user("q4")])
    assert texts(memory.get())[-1] == "q4"


def test_blocks_get_what_llama_index_gives_them() -> None:
    memory = memory_with(Board(name="b", text="{n} {session_id} {colour}"))
    memory.put(user("q"))
    assert "2 s red" in texts(memory.get(input="q", colour="red"))[0]


def test_a_turn_that_was_answered_is_told_late_when_nobody_looked_before() -> None:
    """LlamaIndex's own RAG engines put a question after it was answered."""
    facts = Board(name="facts", text="tea")
    memory = memory_with(facts)
    assert memory.get(input="q1") == []
    memory.put_messages([user("q1"), reply("a1")])
    assert texts(memory.get(input="q2")) == [FACTS.format("tea") + "q1", "a1"]
    facts.text = "coffee"
    memory.put_messages([user("q2"), reply("a2")])
    assert texts(memory.get(input="q3"))[2:] == [FACTS.format("coffee") + "q2", "a2"]


def test_tool_calls_in_between_leave_the_turn_as_it_was_sent() -> None:
    facts = Board(name="facts", text="tea")
    memory = memory_with(facts)
    memory.put(user("q1"))
    sent = memory.get()
    facts.text = "coffee"
    memory.put_messages([_call("c1"), _result("c1")])
    assert memory.get()[:1] == sent


def test_messages_of_a_block_become_text_of_the_turn() -> None:
    class Talk(BaseMemoryBlock[list[ChatMessage]]):
        async def _aget(self, messages: Any = None, **kwargs: Any) -> list[ChatMessage]:
            return [user("old"), reply("older")]

        async def _aput(self, messages: list[ChatMessage]) -> None: ...

    memory = memory_with(Talk(name="talk"))
    memory.put(user("q"))
    inner = "<message role='user'>old</message><message role='assistant'>older</message>"
    assert texts(memory.get()) == [f"<memory><talk>{inner}</talk></memory>q"]


def test_a_block_that_is_no_text_is_refused_in_this_layout() -> None:
    picture = StaticMemoryBlock(name="p", static_content=[ImageBlock(url="http://x/y.png")])
    memory = memory_with(picture)
    memory.put(user("q"))
    with pytest.raises(RequestError, match=r"'p' returned a 'image' block.*layout"):
        memory.get()


@pytest.mark.parametrize("method", InsertMethod)
async def test_the_stock_layout_is_llama_indexs_own(method: InsertMethod) -> None:
    async def told(kind: Any, **options: Any) -> list[ChatMessage]:
        block: Any = StaticMemoryBlock(name="facts", static_content="tea")
        memory = kind(
            memory_blocks=[block], insert_method=method, token_limit=1000, session_id="s", **options
        )
        await memory.aput_messages([ChatMessage(role="system", content="Be brief."), user("q")])
        seen: list[ChatMessage] = await memory.aget()
        return seen

    store = SQLAlchemyChatStore(table_name="t")
    assert await told(Memory, layout="stock") == await told(StockMemory, sql_store=store)
    await _dispose(store)


async def _dispose(store: SQLAlchemyChatStore) -> None:
    if store._async_engine is not None:
        await store._async_engine.dispose()


def test_of_blocks_that_are_too_long_those_of_priority_0_stay() -> None:
    sizes = {"core": (0, 30), "near": (1, 30), "far": (2, 30)}
    blocks = [Board(name=n, priority=p, text=f"{n} " * k) for n, (p, k) in sizes.items()]
    memory = memory_with(*blocks, token_limit=70)
    memory.put(user("q"))
    said = texts(memory.get())[0]
    assert "core" in said
    assert ("near" in said) + ("far" in said) == 1


def test_with_another_store_blocks_are_replayed_in_this_process() -> None:
    facts = Board(name="facts", text="tea")
    store = SQLAlchemyChatStore(table_name="t")

    async def talk() -> None:
        memory = memory_with(facts, chat_store=store)
        await memory.aput_messages([user("yes"), reply("a"), user("yes")])
        first = await memory.aget()
        assert texts(first) == ["yes", "a", FACTS.format("tea") + "yes"]
        await memory.aput_messages([reply("b"), user("q")])
        assert (await memory.aget())[:3] == first
        await _dispose(store)

    asyncio.run(talk())


def _call(name: str) -> ChatMessage:
    block = ToolCallBlock(tool_call_id=name, tool_name="add", tool_kwargs={"a": "w " * 10})
    return ChatMessage(role="assistant", blocks=[block])


def _result(name: str) -> ChatMessage:
    extras = {"tool_call_id": name}
    return ChatMessage(role="tool", content="w " * 10, additional_kwargs=extras)


def test_flushes_are_rare_big_and_at_turns() -> None:
    """Case 13, and no result without its call, and blocks get every message once."""
    board = Board(name="b")
    memory = memory_with(board, token_limit=400, chat_history_token_ratio=1.0, token_flush_size=40)
    before: list[ChatMessage] = []
    flushed = []
    for number in range(40):
        memory.put(user(f"q{number} " + "w " * 10))
        memory.put_messages([_call(f"c{number}"), _result(f"c{number}"), reply("w " * 5)])
        window = memory.get()
        assert window[0].role == "user"
        flushed.append(window[: len(before)] != before)
        before = window
    assert 0 < sum(flushed) <= 7
    assert not any(a and b for a, b in pairwise(flushed))
    archived = memory.get_all(status=ARCHIVED)
    given = [message for portion in board.got for message in portion]
    assert [m.content for m in given] == [m.content for m in archived]
    assert all(portion[0].role == "user" for portion in board.got)
    assert len(board.got) > sum(flushed)  # in portions of token_flush_size
    assert "cachefriendly" not in given[3].additional_kwargs


def test_trim_to_and_the_flush_size_say_how_much_stays() -> None:
    kept = {}
    for trim_to, flush in [(1.0, 10), (0.5, 10), (0.5, 90)]:
        memory = memory_with(
            token_limit=100, chat_history_token_ratio=1.0, token_flush_size=flush, trim_to=trim_to
        )
        memory.put_messages([user("w " * 10) for _ in range(11)])
        kept[trim_to, flush] = len(memory.get())
    assert kept == {(1.0, 10): 9, (0.5, 10): 5, (0.5, 90): 1}


def test_what_a_flushed_turn_said_is_said_again() -> None:
    memory = memory_with(
        Board(name="facts", text="tea"),
        token_limit=100,
        chat_history_token_ratio=1.0,
        token_flush_size=10,
    )
    memory.put(user("w " * 60))
    memory.get()
    memory.put_messages([reply("w " * 30), user("q2 " + "w " * 20)])
    assert texts(memory.get()) == [FACTS.format("tea") + "q2 " + "w " * 20]


def test_the_newest_turn_is_never_cut() -> None:
    memory = memory_with(token_limit=80, chat_history_token_ratio=0.5, token_flush_size=40)
    memory.put_messages([user("w " * 50), _call("c"), _result("c")])
    assert [m.role.value for m in memory.get()] == ["user", "assistant", "tool"]


async def test_two_puts_at_once_flush_what_two_in_a_row_do() -> None:
    kept = []
    for together in (False, True):
        memory = memory_with(token_limit=100, chat_history_token_ratio=1.0, token_flush_size=10)
        await memory.aset([user("w " * 12) for _ in range(8)])
        new = [user(f"{name} " + "w " * 12) for name in "ab"]
        await put_all(memory, new, together=together)
        kept.append(texts(await memory.aget()))
    assert kept[0] == kept[1]


async def test_facts_are_extracted_from_flushed_turns_and_told_in_the_next() -> None:
    engine = ScriptedEngine("<facts><fact>Ada likes tea</fact></facts>")
    facts = FactExtractionMemoryBlock(llm=CacheFriendlyLLM(engine=engine))
    memory = memory_with(facts, token_limit=100, chat_history_token_ratio=1.0, token_flush_size=10)
    await memory.aput_messages([user("I like tea " + "w " * 60), reply("w " * 30)])
    await memory.aput(user("q2 " + "w " * 20))
    assert "Ada likes tea" in texts(await memory.aget())[0]
    assert engine.requests[0].messages[0] == Message("user", "I like tea " + "w " * 60)


class Shelf(BasePydanticVectorStore):
    """Holds nodes, and finds the newest."""

    stores_text: bool = True
    nodes: list[Any] = Field(default_factory=list)

    @property
    def client(self) -> None:
        return None

    def add(self, nodes: Any, **kwargs: Any) -> list[str]:
        self.nodes += nodes
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **kwargs: Any) -> None: ...

    def query(self, query: Any, **kwargs: Any) -> VectorStoreQueryResult:
        return VectorStoreQueryResult(nodes=self.nodes[-1:], similarities=[1.0], ids=["n"])


async def test_what_a_vector_block_finds_stays_with_the_turn_it_was_found_for() -> None:
    shelf = Shelf()
    block = VectorMemoryBlock(vector_store=shelf, embed_model=MockEmbedding(embed_dim=2))
    memory = memory_with(block, token_limit=100, chat_history_token_ratio=1.0, token_flush_size=10)
    await memory.aput_messages([user("old " + "w " * 60), reply("x " * 30)])
    await memory.aput(user("q1 " + "w " * 20))
    memory.token_limit = 1000  # what was found counts as well
    first = await memory.aget()
    assert "<message role='user'>old" in texts(first)[0]
    assert "cf1:" not in shelf.nodes[0].text  # handles are no text
    shelf.nodes.append(TextNode(text="something else"))
    await memory.aput_messages([reply("a1"), user("q2")])
    second = await memory.aget()
    assert second[:1] == first
    assert "something else" in texts(second)[2]


def test_a_conversation_begun_anew_is_told_again() -> None:
    for store in (None, SQLAlchemyChatStore(table_name="t")):

        async def talk(store: Any) -> None:
            memory = memory_with(Board(name="facts", text="tea"), chat_store=store)
            for _ in range(2):
                await memory.aput(user("q"))
                assert texts(await memory.aget()) == [FACTS.format("tea") + "q"]
                await memory.areset()
            if store is not None:
                await _dispose(store)

        asyncio.run(talk(store))


async def test_the_newest_message_can_be_edited_and_keeps_its_memory() -> None:
    memory = memory_with(Board(name="facts", text="tea"))
    await memory.aput(user("q"))
    await memory.aget()
    await memory.aedit_newest(user("State: {}. q"))
    assert texts(await memory.aget()) == [FACTS.format("tea") + "State: {}. q"]
    assert texts(await memory.aget_all()) == ["State: {}. q"]


def test_text_counts_and_what_is_beside_it_does_not() -> None:
    memory = memory_with()
    plain = ChatMessage(role="user", blocks=[TextBlock(text="one two")])
    noted = ChatMessage(role="user", content="one two", additional_kwargs={"x": "y " * 99})
    assert memory._estimate_token_count(plain) == memory._estimate_token_count(noted) == 2
    assert memory._estimate_token_count(_call("c")) > 10
