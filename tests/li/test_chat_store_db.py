"""`StateDiffDBChatStore` beside LlamaIndex's SQL store, alone, with others, and when it dies."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import os
import pickle
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from cachefriendly.errors import ConfigError, RequestError
from cachefriendly_li import StateDiffDBChatStore
from cachefriendly_li.chat_store import StateDiffChatStore

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
CALL = ChatMessage(
    role="assistant",
    blocks=[
        TextBlock(text="I will add.\n"),
        ToolCallBlock(tool_call_id="c1", tool_name="add", tool_kwargs={"b": 1, "a": [None]}),
    ],
    additional_kwargs={"cachefriendly": "cf1:0:1"},
)
RESULT = ChatMessage(role="tool", content="3", additional_kwargs={"tool_call_id": "c1"})
ODD = ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")])
EXTRA = ChatMessage(role="user", content="q", additional_kwargs={"x": {"y": [1, 2.5, None]}})
IMAGE = ChatMessage(role="user", blocks=[ImageBlock(image=b"\x89PNG")])


def user(text: object) -> ChatMessage:
    return ChatMessage(role="user", content=str(text))


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateDiffDBChatStore:
    return StateDiffDBChatStore(None if request.param == "memory" else tmp_path / "chat.sqlite")


async def said(store: AsyncDBChatStore, status: MessageStatus | None = ACTIVE) -> list[str]:
    return [message.content or "" for message in await store.get_messages("k", status)]


async def test_messages_come_back_equal_and_as_copies(store: StateDiffDBChatStore) -> None:
    messages = [user("hi"), CALL, RESULT, ODD, EXTRA]
    await store.add_messages("k", messages)
    got = await store.get_messages("k")
    assert got == messages
    got[0].blocks = [TextBlock(text="changed")]
    assert await store.get_messages("k") == messages
    assert await store.get_messages("k", limit=2, offset=1) == [CALL, RESULT]


Change = Callable[[AsyncDBChatStore, int, MessageStatus], Any]
CHANGES: list[Change] = [
    lambda store, n, status: store.add_message("k", user(n), status),
    lambda store, n, status: store.add_messages("k", [user(n), CALL, RESULT], status),
    lambda store, n, status: store.archive_oldest_messages("k", n % 4),
    lambda store, n, status: store.delete_oldest_messages("k", n % 3),
    lambda store, n, status: store.set_messages("k", [user(n), user(-n)], status),
    lambda store, n, status: store.delete_messages("k", status if n % 3 else None),
]


async def test_it_does_what_the_sql_store_does(store: StateDiffDBChatStore) -> None:
    """The same random changes to both; every view is the same after each."""
    stock, dice = SQLAlchemyChatStore(table_name="t"), random.Random(7)
    for number in range(30 if store.path is None else 10):
        change = dice.choices(CHANGES, weights=[4, 4, 4, 2, 1, 1])[0]
        status = dice.choice([ACTIVE, ACTIVE, ARCHIVED])
        expected, done = [await change(side, number, status) for side in (stock, store)]
        assert done == expected
        for seen in (ACTIVE, ARCHIVED, None):
            views = [await side.get_messages("k", seen) for side in (stock, store)]
            assert views[0] == views[1]
            assert await store.count_messages("k", seen) == len(views[0])
        assert await store.get_keys() == await stock.get_keys()
    assert stock._async_engine is not None
    await stock._async_engine.dispose()


async def test_one_message_is_deleted_by_its_place(store: StateDiffDBChatStore) -> None:
    await store.add_messages("k", [user(number) for number in range(5)])
    await store.archive_oldest_messages("k", 2)
    assert await store.delete_message("k", 3) == user(3)
    assert await store.delete_message("k", 0) == user(0)
    assert await store.delete_message("k", 9) is None
    assert await said(store, ARCHIVED) == ["1"]
    assert await said(store) == ["2", "4"]


async def test_every_earlier_point_can_be_read(store: StateDiffDBChatStore) -> None:
    await store.add_messages("k", [user(1), user(2)])
    await store.archive_oldest_messages("k", 1)
    await store.delete_messages("k")
    assert [m.content for m in store.log("k").at(1)] == ["1", "2"]
    assert store.log("k").messages == ()


async def test_all_of_a_list_is_stored_or_nothing(store: StateDiffDBChatStore) -> None:
    await store.add_message("k", user("kept"))
    for attempt in (store.add_messages, store.set_messages):
        with pytest.raises(RequestError, match=r"message 1 .*'image' block"):
            await attempt("k", [user("lost"), IMAGE])
    assert await said(store) == ["kept"]


@pytest.mark.parametrize("way", ["dict", "pickle", "deepcopy"])
async def test_copies_hold_the_same(store: StateDiffDBChatStore, way: str) -> None:
    await store.add_messages("k", [user("hi"), CALL, EXTRA])
    await store.archive_oldest_messages("k", 1)
    copies: dict[str, Callable[[], StateDiffDBChatStore]] = {
        "dict": lambda: StateDiffDBChatStore.from_dict(store.to_dict()),
        "pickle": lambda: pickle.loads(pickle.dumps(store)),  # noqa: S301
        "deepcopy": lambda: copy.deepcopy(store),
    }
    twin = copies[way]()
    assert await twin.get_messages("k", None) == [user("hi"), CALL, EXTRA]
    await twin.add_message("k", RESULT)
    in_file = store.path is not None
    assert await store.count_messages("k") == (3 if in_file else 2)
    with pytest.raises(RequestError, match="not a StateDiffDBChatStore"):
        StateDiffDBChatStore.from_dict({"class_name": "SQLAlchemyChatStore"})


async def test_conversations_and_tables_are_apart(tmp_path: Path) -> None:
    path = tmp_path / "chat.sqlite"
    stores = [StateDiffDBChatStore(path), StateDiffDBChatStore(path, table_name="other")]
    for number, store in enumerate(stores):
        for key in ("k", "../k", "K"):
            await store.add_message(key, user(f"{number}{key}"))
    for number, store in enumerate(stores):
        assert sorted(await store.get_keys()) == ["../k", "K", "k"]
        assert await said(store) == [f"{number}k"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["chat.sqlite"]
    with pytest.raises(ConfigError, match="there is no folder"):
        StateDiffDBChatStore(tmp_path / "none" / "chat.sqlite")


async def test_sync_code_uses_the_same_file(tmp_path: Path) -> None:
    """`ChatMemoryBuffer` on disk, and a `Memory` of another program on the same conversation."""
    sync, other = (
        kind(tmp_path / "c.sqlite") for kind in (StateDiffChatStore, StateDiffDBChatStore)
    )
    sync.add_message("k", EXTRA)
    await other.add_messages("k", [CALL, RESULT])
    held = sync.get_messages("k")
    assert held == [EXTRA, CALL, RESULT]
    held[-1].blocks = [TextBlock(text="4")]  # agents edit what they were handed
    sync.add_message("k", user("next"))
    assert await said(other) == ["q", "I will add.\n", "4", "next"]
    await other.archive_oldest_messages("k", 1)
    assert sync.get_messages("k")[0] is held[1]
    assert sync.get_keys() == ["k"]
    again = StateDiffChatStore.from_dict(sync.to_dict())
    assert again.get_messages("k") == sync.get_messages("k")


def forked(work: Callable[..., Any], *args: Any) -> multiprocessing.Process:
    """A process that has everything imported already."""
    process = multiprocessing.get_context("fork").Process(target=work, args=args)
    process.start()
    return process  # type: ignore[return-value]


def write_turns(path: str, name: str, gate: Any) -> None:
    store = StateDiffDBChatStore(path)
    gate.wait(20)
    for turn in range(30):
        both = [user(f"{name} {turn}"), ChatMessage(role="assistant", content=f"{name} {turn}")]
        asyncio.run(store.add_messages("k", both))


async def test_two_processes_write_at_once_and_every_turn_stays_together(tmp_path: Path) -> None:
    path = str(tmp_path / "chat.sqlite")
    gate = multiprocessing.get_context("fork").Barrier(2)
    writers = [forked(write_turns, path, name, gate) for name in "ab"]
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    texts = await said(StateDiffDBChatStore(path))
    assert texts[::2] == texts[1::2]
    for name in "ab":
        assert [t for t in texts[::2] if t[0] == name] == [f"{name} {turn}" for turn in range(30)]


class Dies(sqlite3.Connection):
    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(sql, *values)


def die_in_a_commit(path: str) -> None:
    connect = sqlite3.connect
    sqlite3.connect = lambda *v, **o: connect(*v, **o, factory=Dies)  # type: ignore[assignment]
    large = [user("x" * 1_000_000) for _ in range(8)]  # more than SQLite keeps out of the file
    asyncio.run(StateDiffDBChatStore(path).set_messages("k", large))


async def test_a_process_killed_in_a_commit_leaves_what_was_there(tmp_path: Path) -> None:
    store = StateDiffDBChatStore(tmp_path / "chat.sqlite")
    await store.add_messages("k", [user("before"), CALL])
    await store.archive_oldest_messages("k", 1)
    killed = forked(die_in_a_commit, store.path)
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    assert await store.get_messages("k", None) == [user("before"), CALL]
    assert await StateDiffDBChatStore(store.path).get_messages("k") == [CALL]
    await store.add_message("k", RESULT)
    assert await store.get_messages("k") == [CALL, RESULT]


async def test_of_two_that_archive_the_same_messages_one_does() -> None:
    store = StateDiffDBChatStore()
    await store.add_messages("k", [user(number) for number in range(6)])
    seq = (await store.stored("k"))[3].seq
    first, second = await store.archive_until("k", seq), await store.archive_until("k", seq)
    assert [m.content for m in first] == ["0", "1", "2", "3"]
    assert second == []
    assert await said(store) == ["4", "5"]


async def test_notes_stand_beside_messages_and_stay_there() -> None:
    store = StateDiffDBChatStore()
    await store.add_messages("k", [user("a"), EXTRA])
    number = (await store.stored("k"))[1].seq
    await store.note("k", number, {"memory": "m"})
    await store.edit("k", number, user("edited"))
    await store.note("k", 99, {"memory": "nowhere"})
    stored = await store.stored("k")
    assert [(m.seq, m.chat, dict(m.note)) for m in stored] == [
        (0, user("a"), {}),
        (1, user("edited"), {"memory": "m"}),
    ]
