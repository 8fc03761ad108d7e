"""Memories with a limit: what goes stays in the log, and goes rarely, many turns at once."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from cachefriendly import Engine, MissReason
from cachefriendly.testing import byte_tokenizer, tiny_model
from cachefriendly_lc import (
    ChatCacheFriendly,
    ConversationBufferWindowMemory,
    ConversationSummaryBufferMemory,
    ConversationTokenBufferMemory,
    StateDiffChatMessageHistory,
)
from tests.lc.usage import cache_read


class Words(FakeListChatModel):
    """A word is a token; every answer is the next number in words."""

    responses: list[str] = ["summary 1", "summary 2", "summary 3"]  # noqa: RUF012

    def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
        return sum(len(message.text.split()) for message in messages)


class Broken(Words):
    def _call(self, *args: Any, **kwargs: Any) -> str:
        raise ValueError("no summary today")


def ten_words(number: int) -> str:
    return f"{number} " + "word " * 9


def saved(memory: Any, turns: range) -> list[int]:
    """Save turns of 20 tokens; how many messages are shown after each."""
    shown = []
    for turn in turns:
        memory.save_context({"input": ten_words(turn)}, {"output": ten_words(turn)})
        shown.append(len(memory.load_memory_variables({})["history"]))
    return shown


def test_whole_turns_are_dropped_down_to_half_of_the_limit() -> None:
    memory = ConversationTokenBufferMemory(llm=Words(), max_token_limit=100, return_messages=True)
    assert saved(memory, range(12)) == [2, 4, 6, 8, 10, 4, 6, 8, 10, 4, 6, 8]
    history = memory.load_memory_variables({})["history"]
    assert [m.type for m in history] == ["human", "ai"] * 4
    assert history[-1].content == ten_words(11)


def test_a_newest_turn_that_is_too_long_alone_is_cut_as_before() -> None:
    memory = ConversationTokenBufferMemory(llm=Words(), max_token_limit=100, return_messages=True)
    saved(memory, range(3))
    memory.save_context({"input": "word " * 90}, {"output": "word " * 30})
    assert [m.type for m in memory.load_memory_variables({})["history"]] == ["ai"]


def test_no_history_begins_with_the_result_of_a_dropped_call() -> None:
    call = {"name": "add", "args": {}, "id": "c1"}
    turn = [
        AIMessage("word " * 30, tool_calls=[call]),
        ToolMessage("word " * 10, tool_call_id="c1"),
        AIMessage("word " * 30),
    ]
    for trim_to in (1, 0.5):
        memory = ConversationTokenBufferMemory(
            llm=Words(), max_token_limit=66, return_messages=True, trim_to=trim_to
        )
        memory.save_context({"input": "word " * 10}, {"output": turn})
        assert [m.type for m in memory.load_memory_variables({})["history"]] == ["ai"]


def test_what_was_dropped_is_in_the_log(tmp_path: Path) -> None:
    history = StateDiffChatMessageHistory(path=tmp_path / "chats.sqlite", session_id="s")
    memory = ConversationTokenBufferMemory(llm=Words(), max_token_limit=100, chat_memory=history)
    saved(memory, range(6))
    assert len(history.messages) == 4
    added = [d.message.content for d in history.log.diffs if d.message is not None]
    assert added == [ten_words(turn // 2) for turn in range(12)]
    assert len(history.at(10)) == 11  # just before the cut


def test_a_window_drops_nothing_from_the_log_and_counts_turns_not_tool_messages() -> None:
    memory = ConversationBufferWindowMemory(k=2, return_messages=True)
    call = AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": "c1"}])
    for turn in range(4):
        answer = [call, ToolMessage("4", tool_call_id="c1"), AIMessage(f"answer {turn}")]
        memory.save_context({"input": f"question {turn}"}, {"output": answer})
    shown = memory.load_memory_variables({})["history"]
    assert [m.type for m in shown] == ["human", "ai", "tool", "ai"] * 2
    assert shown[0].content == "question 2"
    assert len(memory.chat_memory.messages) == 16
    memory.return_messages = False
    assert memory.buffer.splitlines() == [
        "Human: question 2",
        "AI: answer 2",
        "Human: question 3",
        "AI: answer 3",
    ]


def test_a_summary_takes_the_place_of_the_oldest_turns_and_survives_a_restart(
    tmp_path: Path,
) -> None:
    def reopened(**options: Any) -> ConversationSummaryBufferMemory:
        return ConversationSummaryBufferMemory(
            llm=Words(),
            max_token_limit=100,
            return_messages=True,
            chat_memory=StateDiffChatMessageHistory(path=tmp_path / "log", session_id="s"),
            **options,
        )

    assert saved(reopened(), range(6)) == [2, 4, 6, 8, 10, 5]
    shown = reopened().load_memory_variables({})["history"]
    assert shown[0] == SystemMessage("summary 1")
    assert [m.content for m in shown[1:]] == [ten_words(t) for t in (4, 4, 5, 5)]
    memory = reopened(summary_message_cls=HumanMessage)
    assert memory.buffer[0] == HumanMessage("summary 1")
    memory.clear()
    assert reopened().buffer == []


@pytest.mark.parametrize("kind", [StateDiffChatMessageHistory, InMemoryChatMessageHistory])
@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_a_summary_that_fails_costs_no_message(kind: Any) -> None:
    memory = ConversationSummaryBufferMemory(
        llm=Broken(), max_token_limit=100, return_messages=True, chat_memory=kind()
    )
    saved(memory, range(5))
    with pytest.raises(ValueError, match="no summary today"):
        saved(memory, range(5, 6))
    assert len(memory.load_memory_variables({})["history"]) == 12


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_other_histories_are_cut_as_the_classic_classes_cut_them() -> None:
    memory = ConversationTokenBufferMemory(
        llm=Words(), max_token_limit=100, chat_memory=InMemoryChatMessageHistory()
    )
    saved(memory, range(6))
    assert len(memory.chat_memory.messages) == 4


async def test_async_saves_are_trimmed_and_summarised_too() -> None:
    for kind in (ConversationTokenBufferMemory, ConversationSummaryBufferMemory):
        memory: Any = kind(llm=Words(), max_token_limit=100, return_messages=True)
        for turn in range(6):
            await memory.asave_context({"input": ten_words(turn)}, {"output": ten_words(turn)})
        shown = (await memory.aload_memory_variables({}))["history"]
        assert len(shown) == (4 if kind is ConversationTokenBufferMemory else 5)


async def test_two_that_trim_one_history_at_once_drop_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "log"
    memories = [
        ConversationTokenBufferMemory(
            llm=Words(),
            max_token_limit=100,
            chat_memory=StateDiffChatMessageHistory(path=path, session_id="s"),
        )
        for _ in range(2)
    ]
    saved(memories[0], range(5))
    history = memories[0].chat_memory
    oldest = history.messages[:6]
    assert isinstance(history, StateDiffChatMessageHistory)
    assert history.leave_out(oldest)
    assert not history.leave_out(oldest)
    assert len(history.messages) == 4
    await asyncio.gather(
        *(m.asave_context({"input": ten_words(9)}, {"output": ten_words(9)}) for m in memories * 2)
    )
    assert len(history.messages) >= 4
    assert history.messages[-1].content == ten_words(9)


def test_at_the_limit_the_history_is_never_forwarded_twice_in_a_row() -> None:
    """CASES 13, on a real forward: a cut costs what is kept, then several turns cost themselves."""
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        model = ChatCacheFriendly(engine=engine, temperature=0, max_tokens=20)
        memory = ConversationTokenBufferMemory(llm=model, max_token_limit=700, return_messages=True)
        lost = []
        for turn in range(16):
            shown = memory.load_memory_variables({})["history"]
            asked = HumanMessage(f"Question {turn}: {'x' * 40}")
            reply = model.invoke([*shown, asked])
            lost.append(bool(shown) and cache_read(reply) < 100)
            memory.save_context({"input": asked}, {"output": reply})
    assert 2 <= sum(lost) <= 4
    assert not any(first and second for first, second in pairwise(lost))


def test_a_window_of_k_turns_loses_its_prefix_at_every_turn_and_the_report_says_why() -> None:
    """Exactly k turns is what the class promises; what it costs is named."""
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        model = ChatCacheFriendly(engine=engine, temperature=0, max_tokens=8)
        memory = ConversationBufferWindowMemory(k=2, return_messages=True)
        losses = []
        for turn in range(5):
            asked = HumanMessage(f"Question {turn}?")
            reply = model.invoke([*memory.buffer, asked])
            memory.save_context({"input": asked}, {"output": reply})
            assert engine.last_report is not None
            losses.append([loss.reason for loss in engine.last_report.losses])
    assert losses[1:] == [[], [], [MissReason.MESSAGE_REMOVED], [MissReason.MESSAGE_REMOVED]]
