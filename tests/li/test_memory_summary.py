"""`ChatSummaryMemoryBuffer`: a summary that stays, made as a fork of the live conversation."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.memory.chat_summary_memory_buffer import SUMMARIZE_PROMPT
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.tools import FunctionTool

from cachefriendly import Engine
from cachefriendly.errors import ContextOverflow
from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, scripted_replies, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_li import CacheFriendlyLLM, ChatSummaryMemoryBuffer
from cachefriendly_li.memory_fork import INSTRUCTION

SUMMARY = "They spoke of W."


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def reply(text: str, handle: str | None = None) -> ChatMessage:
    extras = {"cachefriendly": handle} if handle else {}
    return ChatMessage(role="assistant", content=text, additional_kwargs=extras)


def memory_on(engine: Any, *messages: ChatMessage, **options: Any) -> ChatSummaryMemoryBuffer:
    settings = {"tokenizer_fn": str.split, "token_limit": 100, **options}
    llm = None if engine is None else CacheFriendlyLLM(engine=engine)
    return ChatSummaryMemoryBuffer.from_defaults(list(messages), llm=llm, **settings)


def turns(count: int, length: int = 10) -> list[ChatMessage]:
    text = "w " * length
    return [m for n in range(count) for m in (user(f"q{n} {text}"), reply(f"a{n} {text}"))]


def test_a_summary_is_made_rarely_and_stays_where_it_is() -> None:
    engine = ScriptedEngine(SUMMARY)
    memory = memory_on(engine)
    before: list[ChatMessage] = []
    moved = []
    for message in turns(40, 5):
        memory.put(message)
        window = memory.get()
        assert window == memory.get() == memory.get_all()
        moved.append(window[: len(before)] != before)
        before = window
    assert before[0] == ChatMessage(role="system", content=SUMMARY)
    assert len(engine.requests) == sum(moved)
    assert 5 < sum(moved) < 14
    assert not any(a and b for a, b in pairwise(moved))
    assert memory.log is not None
    assert [diff.kind for diff in memory.log.diffs].count("summary") == sum(moved)
    assert len(memory.log.at(7)) == 8  # what was summarised can still be read


def test_a_summary_takes_in_the_one_before() -> None:
    engine = ScriptedEngine("first", "second")
    memory = memory_on(engine, *turns(6))
    assert memory.get()[0].content == "first"
    for message in turns(4):
        memory.put(message)
    assert memory.get()[0].content == "second"
    assert "first" in engine.requests[1].messages[-1].content


def test_without_an_llm_the_oldest_turns_go() -> None:
    memory = memory_on(None, *turns(6))
    assert memory.get() == memory.get_all() == turns(6)[-6:]
    assert memory.log is not None
    assert len(memory.log.at(11)) == 12


def test_a_turn_with_tool_calls_is_not_split() -> None:
    call = ToolCallBlock(tool_call_id="c", tool_name="add", tool_kwargs={"a": "w " * 30})
    result = ChatMessage(role="tool", content="w " * 10, additional_kwargs={"tool_call_id": "c"})
    long = [user("q"), ChatMessage(role="assistant", blocks=[call]), result, reply("done")]
    memory = memory_on(ScriptedEngine(SUMMARY), *turns(3), *long)
    assert memory.get()[1:] == long


def test_the_newest_turn_stays_whole_and_a_summary_alone_is_not_summarised() -> None:
    engine = ScriptedEngine(SUMMARY)
    alone = memory_on(engine, user("w " * 500))
    assert alone.get() == [user("w " * 500)]
    kept = memory_on(engine, ChatMessage(role="system", content="s " * 90), user("w " * 50))
    assert kept.get()[0].role is MessageRole.SYSTEM
    assert engine.requests == []


def test_initial_tokens_count_when_they_are_asked_to() -> None:
    engine = ScriptedEngine(SUMMARY)
    assert len(memory_on(engine, *turns(4)).get(initial_token_count=50)) == 8
    counted = memory_on(engine, *turns(4), count_initial_tokens=True)
    assert counted.get(initial_token_count=50)[0].content == SUMMARY
    with pytest.raises(ValueError, match="Initial token count exceeds token limit"):
        counted.get(initial_token_count=101)


def test_a_call_that_fails_costs_no_message() -> None:
    class Broken(ScriptedEngine):
        def chat(self, request: Any, **options: Any) -> Any:
            raise RuntimeError("no model")

    memory = memory_on(Broken("x"), *turns(6))
    with pytest.raises(RuntimeError, match="no model"):
        memory.get()
    assert memory.get_all() == turns(6)


def test_another_chat_store_holds_the_summary_too() -> None:
    store = SimpleChatStore()
    memory = memory_on(ScriptedEngine(SUMMARY), *turns(6), chat_store=store)
    assert memory.get() == store.get_messages("chat_history")
    assert memory.log is None


@pytest.mark.parametrize("way", ["dict", "string", "pickle", "deepcopy"])
def test_it_survives_being_stored(way: str) -> None:
    engine = ScriptedEngine(SUMMARY)
    memory = memory_on(engine, *turns(6), summarize_prompt="Sum up!", token_limit=90)
    memory.get()
    copies: dict[str, Any] = {
        "dict": lambda: ChatSummaryMemoryBuffer.from_dict(json.loads(json.dumps(memory.to_dict()))),
        "string": lambda: ChatSummaryMemoryBuffer.from_string(memory.to_string()),
        "pickle": lambda: pickle.loads(pickle.dumps(memory)),  # noqa: S301
        "deepcopy": lambda: copy.deepcopy(memory),
    }
    twin = copies[way]()
    assert twin.get_all() == memory.get_all()
    assert (twin.token_limit, twin.summarize_prompt) == (90, "Sum up!")
    assert twin.tokenizer_fn("a b") == ["a", "b"]  # found again in this process
    assert twin.llm is not None
    for message in turns(4):
        twin.put(message)
    assert len(twin.get()) < 10
    assert len(memory.get_all()) < len(turns(6))


def test_in_another_process_it_is_given_an_llm() -> None:
    stored = memory_on(ScriptedEngine(SUMMARY), *turns(2)).to_dict()
    stored.pop("live")  # nothing of that process is here
    bare = ChatSummaryMemoryBuffer.from_dict(stored)
    assert bare.llm is None
    llm = CacheFriendlyLLM(engine=ScriptedEngine("other"))
    bare.use_llm(llm)
    assert bare.llm is llm
    assert ChatSummaryMemoryBuffer.from_dict(stored, llm=llm).llm is llm


def test_the_fork_keeps_system_prompt_and_tools_and_calls_none() -> None:
    """The head is that of the conversation's last call; what memory begins with is not doubled."""
    engine = ScriptedEngine(Message("assistant", "Hi.", handle="cf1:h"), SUMMARY)
    llm = CacheFriendlyLLM(engine=engine, session_id="thread")
    old = ChatMessage(role="system", content="Summary so far.")
    memory = memory_on(engine, old, *turns(5))
    memory.llm = llm
    tool = FunctionTool.from_defaults(fn=lambda a: a, name="look", description="Look")
    system = ChatMessage(role="system", content="Be brief.")
    asked = llm.chat_with_tools([tool], chat_history=[system, *memory.get_all()[:-1], user("q")])
    memory.put(asked.message)
    memory.get()
    live, fork = engine.requests
    assert fork.messages[:-1] == live.messages[: len(fork.messages) - 1]
    assert fork.messages[-1] == Message("user", INSTRUCTION)
    assert (fork.tools, fork.tool_choice) == (live.tools, "none")
    assert fork.session != live.session


def test_a_reply_of_another_namespace_brings_nothing_of_it() -> None:
    engine = ScriptedEngine(Message("assistant", "Hi.", handle="cf1:h"), SUMMARY)
    llm = CacheFriendlyLLM(engine=engine, cache_namespace="a")
    llm.chat([ChatMessage(role="system", content="A's secret."), user("hello")])
    talk = [m if m.role == "user" else reply(str(m.content), "cf1:h") for m in turns(6)]
    memory = memory_on(engine, *talk)
    memory.llm = CacheFriendlyLLM(engine=engine, cache_namespace="b")
    memory.get()
    assert "A's secret." not in str(engine.requests[-1].messages)
    assert engine.requests[-1].namespace == "b"


def test_without_a_live_conversation_llama_index_makes_the_summary() -> None:
    class Full(ScriptedEngine):
        def chat(self, request: Any, **options: Any) -> Any:
            if request.messages[-1].content == INSTRUCTION:
                raise ContextOverflow("too long")
            return super().chat(request, **options)

    stranger, full = ScriptedEngine(SUMMARY), Full("Hi.", SUMMARY)
    CacheFriendlyLLM(engine=full).chat([user("hello")])
    for engine, handle in ((stranger, None), (full, "cf1:h")):
        talk = [m if m.role == "user" else reply(str(m.content), handle) for m in turns(6)]
        assert memory_on(engine, *talk).get()[0].role is MessageRole.SYSTEM
        system, transcript = engine.requests[-1].messages
        assert (system.role, system.content) == ("system", SUMMARIZE_PROMPT)
        assert "q0" in transcript.content


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(tiny_model(num_hidden_layers=1), byte_tokenizer()) as tiny:
        yield tiny


def test_a_summary_prefills_its_instruction_and_evicts_nothing(engine: Engine) -> None:
    """On a real model: the live messages are reused whole, and still are after it."""
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=30)
    memory = ChatSummaryMemoryBuffer.from_defaults(llm=llm, token_limit=200)
    system = ChatMessage(role="system", content="Be kind.")
    sent: list[ChatMessage] = []
    for number in range(3):
        memory.put(user(f"Question {number}: " + "x" * 50))
        sent = [system, *memory.get_all()]
        with scripted_replies([*engine.token_ids("An answer."), END_ID]):
            sent.append(llm.chat(sent).message)
        memory.put(sent[-1])
    before = engine.last_report
    memory.put(user("And now? " + "x" * 20))
    with scripted_replies([*engine.token_ids(SUMMARY), END_ID]):
        kept = memory.get()
    assert [m.content for m in kept] == [SUMMARY, *(m.content for m in memory.get_all()[1:])]
    assert len(kept) == 4
    summary = engine.last_report
    assert before is not None
    assert summary is not None
    new = f"<|im_start|>user\n{INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n"
    assert summary.losses == ()
    assert summary.prefilled_tokens <= len(engine.token_ids(new)) + 2
    assert summary.generated_tokens == len(engine.token_ids(SUMMARY)) + 1
    llm.chat([*sent, user("still there?")], max_new_tokens=1)
    after = engine.last_report
    assert after is not None
    assert after.reused_tokens >= before.prompt_tokens + before.generated_tokens - 1
