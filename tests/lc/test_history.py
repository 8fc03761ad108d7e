"""`StateDiffChatMessageHistory`, in memory and in a file."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory

from cachefriendly import ChatResult, Engine
from cachefriendly.errors import ConfigError, RequestError
from cachefriendly.state import StateLog
from cachefriendly.testing import ScriptedEngine, scripted_replies, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import ChatCacheFriendly, StateDiffChatMessageHistory
from tests.prompt.another_process import SPELLED, merged_tokenizer

CALL = AIMessage(
    "",
    tool_calls=[{"name": "add", "args": {"b": 2, "a": 2}, "id": "c1"}],
    response_metadata={"cachefriendly": "cf1:a:b"},
)
TURN = [HumanMessage("2+2?"), CALL, ToolMessage("4", tool_call_id="c1"), AIMessage("Four.")]


@pytest.fixture(params=["memory", "file"])
def reopen(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], StateDiffChatMessageHistory]:
    """Gives the same conversation at every call; from the file each time anew."""
    if request.param == "file":
        path = tmp_path / "chats.sqlite"
        return lambda: StateDiffChatMessageHistory(path=path, session_id="s")
    kept = StateDiffChatMessageHistory()
    return lambda: kept


def _pickled(history: Any) -> Any:
    return pickle.loads(pickle.dumps(history))  # noqa: S301


Reopen = Callable[[], StateDiffChatMessageHistory]


def texts(messages: list[BaseMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def test_messages_come_back_with_calls_and_handles(reopen: Reopen) -> None:
    reopen().add_messages(TURN)
    assert reopen().messages == TURN
    assert list(reopen().messages[1].tool_calls[0]["args"]) == ["b", "a"]  # type: ignore[attr-defined]


def test_the_convenience_methods(reopen: Reopen) -> None:
    reopen().add_user_message("hi")
    reopen().add_ai_message("hello")
    reopen().add_message(SystemMessage("be kind"))
    assert reopen().messages == [HumanMessage("hi"), AIMessage("hello"), SystemMessage("be kind")]
    assert str(reopen()) == "Human: hi\nAI: hello\nSystem: be kind"


async def test_async_forms(reopen: Reopen) -> None:
    await reopen().aadd_messages(TURN)
    assert await reopen().aget_messages() == TURN
    await reopen().aclear()
    assert await reopen().aget_messages() == []


def test_all_messages_are_added_or_none(reopen: Reopen) -> None:
    with pytest.raises(RequestError, match="message 1: content block of type 'image'"):
        reopen().add_messages([HumanMessage("x"), HumanMessage([{"type": "image"}])])
    assert reopen().messages == []


def test_handed_out_lists_and_logs_are_copies(reopen: Reopen) -> None:
    reopen().add_messages(TURN)
    reopen().messages.clear()
    reopen().log.clear()
    assert reopen().messages == TURN


def test_every_earlier_point_can_be_read_after_a_clear_too(reopen: Reopen) -> None:
    reopen().add_user_message("one")
    reopen().add_ai_message("two")
    reopen().clear()
    reopen().add_user_message("three")
    history = reopen()
    points = [texts(history.at(seq)) for seq in range(-1, len(history.log))]
    assert points == [[], ["one"], ["one", "two"], [], ["three"]]
    with pytest.raises(RequestError, match="no diff 4"):
        history.at(4)


def test_bytes_per_turn_do_not_grow(reopen: Reopen) -> None:
    history, sizes = reopen(), {}
    for turn in range(201):
        if turn in (9, 10, 199, 200):
            sizes[turn] = len(history.to_json_lines())
        history.add_messages([HumanMessage("a question of one size"), AIMessage("an answer")])
    early, late = sizes[10] - sizes[9], sizes[200] - sizes[199]
    assert late - early <= 4  # only the digits of the sequence numbers grow


def test_a_file_grows_by_the_same_bytes_early_and_late(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    history = StateDiffChatMessageHistory(path=path, session_id="s")
    sizes = []
    for _ in range(120):
        history.add_messages([HumanMessage("q" * 500), AIMessage("a" * 500)])
        sizes.append(path.stat().st_size)
    early, late = sizes[39] - sizes[9], sizes[119] - sizes[89]
    assert abs(late - early) <= 8192  # two pages
    assert late < 30 * 1000 * 2  # and it holds the text once


def test_exported_lines_become_an_equal_history(reopen: Reopen) -> None:
    reopen().add_messages(TURN)
    copy = StateDiffChatMessageHistory.from_json_lines(reopen().to_json_lines())
    assert copy.messages == TURN
    copy.add_user_message("more")
    assert reopen().messages == TURN


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled])
def test_copies_of_one_in_memory_are_apart_and_of_one_in_a_file_share_it(
    reopen: Reopen, copied: Any
) -> None:
    history = reopen()
    history.add_messages(TURN)
    twin = copied(history)
    assert twin.messages == TURN
    twin.add_user_message("more")
    in_a_file = len(reopen().messages) == len(twin.messages)
    assert in_a_file == (reopen() is not history)


def test_a_conversation_that_goes_on_elsewhere_has_the_ids_of_its_replies(tmp_path: Path) -> None:
    """They are spelled as no tokenizer spells them; only with ``model`` are they kept."""
    place = {"path": tmp_path / "chats.sqlite", "session_id": "s"}

    def asked(engine: Engine, text: str, **options: Any) -> ChatResult:
        history = StateDiffChatMessageHistory(**place, **options)
        started: list[Any] = []
        chat = engine.chat
        engine.chat = lambda *a, **k: started.append(chat(*a, **k)) or started[-1]  # type: ignore[method-assign,func-returns-value]
        question = HumanMessage(text)
        with scripted_replies([*SPELLED, END_ID]):
            reply = ChatCacheFriendly(engine=engine).invoke([*history.messages, question])
        history.add_messages([question, reply])
        result: ChatResult = started[0].result()
        return result

    def engine() -> Engine:
        return Engine(tiny_model(vocab_size=1001), merged_tokenizer())

    with engine() as first:
        for text in ("one?", "two?"):
            before = asked(first, text, model=ChatCacheFriendly(engine=first))
    for knows in (False, True):
        with engine() as other:
            model = ChatCacheFriendly(engine=other) if knows else None
            after = asked(other, "three?", model=model)
        held = (*before.prompt_ids, *before.output_ids)
        assert (after.prompt_ids[: len(held)] == held) == knows


def test_arguments_that_do_not_fit_together(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite"
    with pytest.raises(ConfigError, match="session_id='s' needs path="):
        StateDiffChatMessageHistory(session_id="s")
    with pytest.raises(ConfigError, match="path= needs session_id="):
        StateDiffChatMessageHistory(path=path)
    with pytest.raises(ConfigError, match="model= is for histories in a file"):
        StateDiffChatMessageHistory(model=ChatCacheFriendly(engine=ScriptedEngine("x")))
    with pytest.raises(ConfigError, match="not both"):
        StateDiffChatMessageHistory(StateLog(), path=path, session_id="s")
    assert not path.exists()


# RunnableWithMessageHistory says that it is deprecated.
@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
@pytest.mark.parametrize("form", ["invoke", "ainvoke"])
async def test_runnable_with_message_history(tmp_path: Path, form: str) -> None:
    path = tmp_path / "chats.sqlite"
    prompt = ChatPromptTemplate.from_messages(
        [("system", "be brief"), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    seen: list[list[str]] = []

    def reply(value: object) -> AIMessage:
        seen.append(texts(prompt_messages(value)))
        return AIMessage(f"answer {len(seen)}", response_metadata={"cachefriendly": "cf1:x:y"})

    chain = RunnableWithMessageHistory(
        prompt | reply,
        lambda session_id: StateDiffChatMessageHistory(path=path, session_id=session_id),
        input_messages_key="question",
        history_messages_key="history",
    )
    for session, question in [("a/../b", "one"), ("'; --", "other"), ("a/../b", "two")]:
        config = {"configurable": {"session_id": session}}
        if form == "invoke":
            chain.invoke({"question": question}, config)
        else:
            await chain.ainvoke({"question": question}, config)
    assert seen == [
        ["be brief", "one"],
        ["be brief", "other"],
        ["be brief", "one", "answer 1", "two"],
    ]
    kept = StateDiffChatMessageHistory(path=path, session_id="a/../b").messages
    assert texts(kept) == ["one", "answer 1", "two", "answer 3"]
    assert kept[1].response_metadata == {"cachefriendly": "cf1:x:y"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["chats.sqlite"]


def prompt_messages(value: object) -> list[BaseMessage]:
    return value.to_messages()  # type: ignore[attr-defined,no-any-return]
