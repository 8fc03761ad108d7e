"""Ways in which threads, histories and reply caches broke in public, each tried on ours.

The address is for the background: repository and number of the public thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import (
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Overwrite

from cachefriendly import Engine, Message, ToolCall
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, templates, tiny_model
from cachefriendly_lc import (
    CacheFriendlyMiddleware,
    ChatCacheFriendly,
    ConversationBufferWindowMemory,
    StateDiffAgentState,
    StateDiffChatMessageHistory,
    SummarizationMiddleware,
)
from tests.lc.early import CONFIG, FORMS
from tests.lc.usage import cache_read, held_after

pytestmark = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.LangChainDeprecationWarning"  # RunnableWithMessageHistory
)


@tool
def look(x: str) -> str:
    """Look."""
    return f"saw {x}"


@tool
def tell(x: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Tell by a command."""
    return Command(update={"messages": [ToolMessage(f"told {x}", tool_call_id=tool_call_id)]})


def go() -> Any:
    return {"messages": [HumanMessage("Go.")]}


def calling(*names: str) -> Message:
    calls = (ToolCall(name, {"x": str(n)}, f"c{n}") for n, name in enumerate(names))
    return Message("assistant", "", tuple(calls), handle="cf1:0:1")


def agent_on(engine: Any, *middleware: Any, saver: Any = None, **options: Any) -> Any:
    model = ChatCacheFriendly(engine=engine)
    return create_agent(
        model,
        [look, tell],
        state_schema=StateDiffAgentState,
        checkpointer=saver or InMemorySaver(),
        middleware=[*middleware, CacheFriendlyMiddleware(model, **options)],
    )


def said(messages: list[BaseMessage]) -> list[Any]:
    return [(message.type, message.text, message.id) for message in messages]


def stored(agent: Any, config: Any = CONFIG) -> list[BaseMessage]:
    messages: list[BaseMessage] = agent.get_state(config).values["messages"]
    return messages


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_results_of_parallel_tools_are_read_in_the_order_they_came(kind: str) -> None:
    """langchain-ai/langgraph 8382: diffs were replayed in another order than they were applied."""
    saver: Any = InMemorySaver()
    if kind == "sqlite":
        saver = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
    for turn in range(5):  # ids of tasks are random, so one turn may be right by chance
        agent = agent_on(ScriptedEngine(calling(*["look"] * 4), "Done.", "Yes."), saver=saver)
        config: Any = {"configurable": {"thread_id": f"t{turn}"}}
        live = agent.invoke(go(), config)["messages"]
        assert [m.text for m in live[2:-1]] == ["saw 0", "saw 1", "saw 2", "saw 3"]
        assert said(stored(agent, config)) == said(live)
        assert said(agent.invoke(go(), config)["messages"][: len(live)]) == said(live)


def test_a_fork_has_nothing_of_the_branch_it_left() -> None:
    """langchain-ai/langgraph 8443: the abandoned branch's writes came into the fork."""
    agent = agent_on(ScriptedEngine("r0", "r1", "r2"))
    agent.invoke({"messages": [HumanMessage("a")]}, CONFIG)
    first = agent.get_state(CONFIG).config
    agent.invoke({"messages": [HumanMessage("b")]}, CONFIG)
    fork = agent.invoke({"messages": [HumanMessage("c")]}, first)["messages"]
    assert [m.text for m in fork] == [m.text for m in stored(agent)] == ["a", "r0", "c", "r2"]
    branches = [[m.text for m in s.values["messages"]] for s in agent.get_state_history(CONFIG)]
    assert ["a", "r0", "b", "r1"] in branches
    assert all(texts[:2] == ["a", "r0"][: len(texts)] for texts in branches)


@pytest.mark.parametrize(
    "written",
    [
        HumanMessage("new"),
        "new",
        {"role": "user", "content": "new"},
        [("user", "new")],
        Overwrite([HumanMessage("new")]),
        Overwrite([{"role": "user", "content": "new"}]),
    ],
    ids=["message", "text", "dict", "pairs", "overwrite", "overwrite of dicts"],
)
def test_a_message_written_without_an_id_has_one_for_good(written: Any) -> None:
    """langchain-ai/deepagents 3357, ginlix-ai/LangAlpha 282: another id at every read, so that
    nothing could be removed or edited, and messages stood there twice."""
    agent = agent_on(ScriptedEngine("r0", "r1"))
    agent.invoke(go(), CONFIG)
    agent.update_state(CONFIG, {"messages": written})
    once, again = said(stored(agent)), said(stored(agent))
    assert once == again
    assert all(identity for _, _, identity in once)
    going_on = agent.invoke({"messages": [HumanMessage("b")]}, CONFIG)["messages"]
    assert said(going_on)[: len(once)] == once
    agent.update_state(CONFIG, {"messages": [RemoveMessage(id=once[-1][2])]})
    assert "new" not in [m.text for m in stored(agent)]


def test_what_is_written_beside_an_overwrite_is_the_same_live_and_read_again() -> None:
    """langchain-ai/langgraph 8821: a live step dropped what a replay kept."""
    writes = {"a": ["beside"], "b": Overwrite([HumanMessage("fresh")]), "c": ["beside too"]}
    graph = StateGraph(StateDiffAgentState)
    for name, write in writes.items():
        graph.add_node(name, lambda state, write=write: {"messages": write})
        graph.add_edge(START, name)
    agent = graph.compile(checkpointer=InMemorySaver())
    live: Any = agent.invoke(go(), CONFIG)["messages"]
    assert [m.text for m in live] == ["fresh"]
    assert said(stored(agent)) == said(live)


@pytest.mark.parametrize("early", [(), ("look",)], ids=["stock", "early"])
def test_tools_that_answer_by_commands_are_all_heard(early: tuple[str, ...]) -> None:
    """langchain-ai/langgraph 2831: of parallel commands only the last one came out of a stream."""
    engine = ScriptedEngine(calling("tell", "look", "tell"), "Done.")
    agent = agent_on(engine, early_tools=early)
    parts = list(agent.stream(go(), CONFIG, stream_mode="updates"))
    heard = [m.text for part in parts for m in (part.get("tools") or {}).get("messages", [])]
    assert sorted(heard) == ["saw 1", "told 0", "told 2"]
    assert [m.content for m in engine.requests[-1].messages[2:]] == ["told 0", "saw 1", "told 2"]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_no_result_is_sent_without_its_call_after_a_summary(keep: int) -> None:
    """langchain-ai/langchain 34282, langchain-ai/deepagents 270: orphaned results were refused."""
    engine = ScriptedEngine(calling("look", "look", "look"), *["Text."] * 4)
    model = ChatCacheFriendly(engine=engine)
    summaries = SummarizationMiddleware(model, trigger=("messages", 4), keep=("messages", keep))
    agent_on(engine, summaries).invoke(go(), CONFIG)
    assert len(engine.requests) > 2
    for request in engine.requests:
        made = [call.id for message in request.messages for call in message.tool_calls]
        answered = [m.tool_call_id for m in request.messages if m.role == "tool"]
        assert answered == made[: len(answered)]


def test_a_long_conversation_of_tools_is_summarised_and_not_dropped() -> None:
    """langchain-ai/langchain 39261: where no question was among the newest messages, a stock
    phrase took the place of the history, and no model was asked."""
    engine = ScriptedEngine(*[calling("look")] * 4, "The summary.", "Done.")
    model = ChatCacheFriendly(engine=engine)
    summaries = SummarizationMiddleware(
        model, trigger=("messages", 9), keep=("messages", 1), trim_tokens_to_summarize=5
    )
    done = agent_on(engine, summaries).invoke(go(), CONFIG)["messages"]
    assert "The summary." in done[0].text
    roles = [message.role for message in engine.requests[4].messages]
    assert roles == ["user", *["assistant", "tool"] * 3, "user"]  # the newest pair is kept


@pytest.mark.parametrize("form", FORMS)
async def test_a_history_takes_streamed_replies(form: str) -> None:
    """langchain-ai/langchain 14511: the second streamed turn found chunks in its history."""
    engine = ScriptedEngine("one", "two", "three")
    kept = StateDiffChatMessageHistory()
    chat = RunnableWithMessageHistory(ChatCacheFriendly(engine=engine), lambda session_id: kept)
    config: Any = {"configurable": {"session_id": "s"}}
    for text in ("a", "b", "c"):
        if form.endswith("invoke"):
            await chat.ainvoke([HumanMessage(text)], config)
        elif form == "stream":
            list(chat.stream([HumanMessage(text)], config))
        else:
            [part async for part in chat.astream([HumanMessage(text)], config)]
    assert [m.text for m in kept.messages] == ["a", "one", "b", "two", "c", "three"]
    assert [m.content for m in engine.requests[-1].messages] == ["a", "one", "b", "two", "c"]


@pytest.fixture
def reply_cache() -> Iterator[None]:
    set_llm_cache(InMemoryCache())
    yield
    set_llm_cache(None)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_conversation_that_is_repeated_comes_from_the_reply_cache(
    reply_cache: None, streaming: bool
) -> None:
    """langchain-ai/langchain 31949: ids and, after the first hit, a note about costs were part of
    the next prompt's key, so that an agent's later calls never hit."""
    engine = ScriptedEngine(calling("look"), "Done.", "Yes.")
    agent = create_agent(
        ChatCacheFriendly(engine=engine, streaming=streaming),
        [look],
        state_schema=StateDiffAgentState,
        checkpointer=InMemorySaver(),
    )
    talks = []
    for name in ("first", "second", "third"):
        config: Any = {"configurable": {"thread_id": name}}
        for _ in range(2):
            agent.invoke(go(), config)
        talks.append([m.text for m in stored(agent, config)])
    assert talks == [["Go.", "", "saw 0", "Done.", "Go.", "Yes."]] * 3
    assert len(engine.requests) == 3


async def test_two_equal_questions_have_two_replies_in_a_thread(reply_cache: None) -> None:
    """The second reply came from the reply cache with the first one's id and took its place."""
    model = ChatCacheFriendly(engine=ScriptedEngine("same"))
    agent = agent_on(ScriptedEngine("r0"))
    agent.invoke(go(), CONFIG)
    for reply in (model.invoke("Well?"), model.invoke("Well?"), await model.ainvoke("Well?")):
        agent.update_state(CONFIG, {"messages": [HumanMessage("Well?"), reply]})
    assert [m.text for m in stored(agent)] == ["Go.", "r0", *["Well?", "same"] * 3]


def test_marks_for_other_providers_caches_change_nothing() -> None:
    """langchain-ai/langchainjs 10418, langchain-ai/langchain 32818: marks that wander through the
    conversation are no part of the prompt."""

    def marked(text: str) -> Any:
        return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]

    with Engine(tiny_model("llama"), byte_tokenizer(templates.NATIVE_TOOLS)) as engine:
        model = ChatCacheFriendly(engine=engine, max_tokens=8)
        reply = model.invoke([SystemMessage(marked("Be brief.")), HumanMessage(marked("Hi"))])
        history = [SystemMessage("Be brief."), HumanMessage("Hi"), reply]
        later = model.invoke([*history, HumanMessage(marked("More"))])
    assert cache_read(later) == held_after(reply)


def test_a_window_of_no_turns_shows_none() -> None:
    """langchain-ai/langchain 2796: ``k=0`` gave the whole conversation."""
    memory = ConversationBufferWindowMemory(k=0, return_messages=True)
    memory.save_context({"input": "a"}, {"output": "b"})
    assert memory.load_memory_variables({}) == {"history": []}
