"""`ConversationBufferMemory` on state diffs: what the classic one does, and what it loses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import langchain_classic.memory
import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    ToolMessage,
    trim_messages,
)

from cachefriendly.errors import ConfigError, RequestError
from cachefriendly_lc import (
    ChatCacheFriendly,
    ConversationBufferMemory,
)

REPLY = AIMessage(
    "four",
    tool_calls=[{"name": "add", "args": {"a": 2, "b": 2}, "id": "c1"}],
    response_metadata={"cachefriendly": "cf1:a:b"},
)


def test_is_the_classic_memory() -> None:
    memory = ConversationBufferMemory()
    assert isinstance(memory, langchain_classic.memory.ConversationBufferMemory)
    assert memory.memory_variables == ["history"]
    assert memory.load_memory_variables({}) == {"history": ""}


# The classic classes are deprecated and say so once per process.
@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
@pytest.mark.parametrize("return_messages", [True, False])
def test_text_in_and_out_equals_the_classic_one(return_messages: bool) -> None:
    options = {"return_messages": return_messages, "memory_key": "chat", "ai_prefix": "Bot"}
    classic = langchain_classic.memory.ConversationBufferMemory(**options)
    ours = ConversationBufferMemory(**options)
    for turn in range(3):
        for memory in (classic, ours):
            memory.save_context({"input": f"question {turn}"}, {"output": f"answer {turn}"})
    assert ours.load_memory_variables({}) == classic.load_memory_variables({})
    ours.clear()
    classic.clear()
    assert ours.load_memory_variables({}) == classic.load_memory_variables({})


def test_messages_keep_calls_and_handles() -> None:
    memory = ConversationBufferMemory(return_messages=True)
    memory.save_context({"input": HumanMessage("2+2?")}, {"output": REPLY})
    asked, answered = memory.load_memory_variables({})["history"]
    assert asked == HumanMessage("2+2?")
    assert answered.tool_calls == REPLY.tool_calls
    assert answered.response_metadata["cachefriendly"] == "cf1:a:b"


def test_a_whole_turn_with_tool_results() -> None:
    memory = ConversationBufferMemory(return_messages=True)
    turn = [REPLY, ToolMessage("4", tool_call_id="c1", name="add"), AIMessage("It is four.")]
    memory.save_context({"input": "2+2?"}, {"output": turn})
    history = memory.load_memory_variables({})["history"]
    assert [m.type for m in history] == ["human", "ai", "tool", "ai"]
    assert history[2].tool_call_id == "c1"


async def test_async_forms() -> None:
    memory = ConversationBufferMemory(return_messages=True)
    await memory.asave_context({"input": "hi"}, {"output": AIMessage("hello")})
    assert [m.content for m in (await memory.aload_memory_variables({}))["history"]] == [
        "hi",
        "hello",
    ]
    await memory.aclear()
    assert (await memory.aload_memory_variables({}))["history"] == []


def test_export_and_import() -> None:
    memory = ConversationBufferMemory(return_messages=True)
    memory.save_context({"input": "2+2?"}, {"output": REPLY})
    copy = ConversationBufferMemory.from_json_lines(memory.to_json_lines(), return_messages=True)
    assert copy.load_memory_variables({}) == memory.load_memory_variables({})
    copy.save_context({"input": "more"}, {"output": "no"})
    assert len(memory.load_memory_variables({})["history"]) == 2


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_unusable_values() -> None:
    memory = ConversationBufferMemory()
    with pytest.raises(RequestError, match="output of save_context is dict"):
        memory.save_context({"input": "x"}, {"output": {}})
    foreign = ConversationBufferMemory(chat_memory=InMemoryChatMessageHistory())
    with pytest.raises(ConfigError, match="InMemoryChatMessageHistory"):
        foreign.to_json_lines()


def run_without(module: str, code: str) -> subprocess.CompletedProcess[str]:
    block = f"import sys; sys.modules[{module!r}] = None\n"
    command: list[Any] = [sys.executable, "-c", block + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_langchain_classic() -> None:
    done = run_without(
        "langchain_classic",
        "import cachefriendly_lc\ncachefriendly_lc.ChatCacheFriendly\n"
        "from cachefriendly_lc import ConversationBufferMemory",
    )
    assert done.returncode != 0
    assert "MissingExtra" in done.stderr
    assert "pip install 'cachefriendly[agents]'" in done.stderr


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, cachefriendly_lc\ncachefriendly_lc.ChatCacheFriendly\n"
        "assert 'torch' not in sys.modules and 'langchain_classic' not in sys.modules"
    )
    done = run_without("llama_index", code)
    assert done.returncode == 0, done.stderr


def test_trim_messages_counts_with_the_model(demo_engine: Any) -> None:
    """It counts reversed, partial lists too: a tool result before its call, or nothing at all."""
    model = ChatCacheFriendly(engine=demo_engine)
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "1"}
    talk = [
        HumanMessage("Weather in Rome?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("sunny", tool_call_id="1"),
        AIMessage("Sunny."),
        HumanMessage("Thanks!"),
    ]
    for strategy in ("last", "first"):
        kept = trim_messages(talk, max_tokens=10_000, token_counter=model, strategy=strategy)
        assert kept == talk
    assert model.get_num_tokens_from_messages([]) == 0
