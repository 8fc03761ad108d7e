"""The chat model on the real demo model: every call form, exact reuse, tools, structured output."""

from __future__ import annotations

import asyncio
import copy
import functools
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from pydantic import BaseModel

from cachefriendly.errors import ContextOverflow, RequestError, SchemaError
from cachefriendly.testing import EmbeddingCount
from cachefriendly_lc import ChatCacheFriendly, ConversationBufferMemory
from tests.lc.tool_box import add, get_weather
from tests.lc.usage import cache_read, forwarded_for, held_after, taken

if TYPE_CHECKING:
    from cachefriendly import Engine

SYSTEM = SystemMessage("You are a helpful assistant. Answer in one short sentence.")


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    hobbies: list[str]


async def ask(model: Any, messages: list[BaseMessage], form: str) -> AIMessage:
    """One call in the given form; streams are merged."""
    if form == "invoke":
        return model.invoke(messages)
    if form == "ainvoke":
        return await model.ainvoke(messages)
    if form == "batch":
        return model.batch([messages])[0]
    if form == "abatch":
        return (await model.abatch([messages]))[0]
    whole: Any = None
    if form == "stream":
        for chunk in model.stream(messages):
            whole = chunk if whole is None else whole + chunk
    else:
        async for chunk in model.astream(messages):
            whole = chunk if whole is None else whole + chunk
    return AIMessage(**{k: v for k, v in whole.model_dump().items() if k in AI_FIELDS})


AI_FIELDS = {"content", "tool_calls", "invalid_tool_calls", "response_metadata", "usage_metadata"}
FORMS = ["invoke", "ainvoke", "batch", "abatch", "stream", "astream"]


@pytest.mark.parametrize("form", FORMS)
async def test_each_warm_call_forwards_exactly_its_new_tokens(
    demo_chat: ChatCacheFriendly, embedded: EmbeddingCount, form: str
) -> None:
    history: list[BaseMessage] = [SYSTEM]
    last: AIMessage | None = None
    for question in ("Who wrote Hamlet?", "And when?", "In which language?"):
        history.append(HumanMessage(question))
        reply = await ask(demo_chat, history, form)
        report = demo_chat.engine.last_report
        usage = reply.usage_metadata
        assert usage is not None
        assert usage["input_tokens"] == report.prompt_tokens
        assert usage["output_tokens"] == report.generated_tokens
        assert usage["input_token_details"] == {
            "cache_read": report.reused_tokens,
            "cache_creation": report.prefilled_tokens,
        }
        assert taken(embedded) == forwarded_for(reply) == report.forwarded_tokens
        assert cache_read(reply) == (held_after(last) if last else 0)
        history.append(reply)
        last = reply


async def test_all_forms_say_the_same(demo_chat: ChatCacheFriendly) -> None:
    messages = [SYSTEM, HumanMessage("Name three colours.")]
    replies = [await ask(demo_chat, messages, form) for form in FORMS]
    assert {reply.content for reply in replies} == {replies[0].content}
    assert len({reply.response_metadata["cachefriendly"] for reply in replies}) == 1
    assert replies[0].content


def test_batch_runs_in_shared_forwards(demo_chat: ChatCacheFriendly) -> None:
    questions = [f"Say the number {n}." for n in range(5)]
    short = {"max_tokens": 8}
    alone = [demo_chat.invoke(q, cache_namespace="alone", **short).content for q in questions]
    before = demo_chat.engine.stats().core.forwards
    together = demo_chat.batch(questions, **short)
    forwards = demo_chat.engine.stats().core.forwards - before
    assert [reply.content for reply in together] == alone
    generated = [reply.usage_metadata["output_tokens"] for reply in together]
    assert forwards < sum(generated) / 2


@pytest.mark.parametrize("form", ["invoke", "astream"])
async def test_a_rebuilt_history_without_handles_keeps_the_cache(
    demo_chat: ChatCacheFriendly, form: str
) -> None:
    first = await ask(demo_chat, [HumanMessage("Tell me about rivers.")], form)
    rebuilt = [
        HumanMessage([{"type": "text", "text": "Tell me about rivers."}]),
        AIMessage(content=first.content),
        HumanMessage("Shorter."),
    ]
    second = await ask(demo_chat, rebuilt, form)
    assert cache_read(second) == held_after(first)


def test_retry_and_branch_land_on_held_tokens(demo_chat: ChatCacheFriendly) -> None:
    history = [SYSTEM, HumanMessage("Tell me about the sea.")]
    first = demo_chat.invoke(history)
    again = demo_chat.invoke(history)
    assert again.content == first.content
    assert cache_read(again) == first.usage_metadata["input_tokens"] - 1
    branch = demo_chat.invoke([*history, first, HumanMessage("More.")])
    assert cache_read(branch) == held_after(first)


def test_forced_tool_call(demo_chat: ChatCacheFriendly) -> None:
    question = [HumanMessage("What is the weather in Paris?")]
    for choice in ("any", {"type": "function", "function": {"name": "add"}}):
        bound = demo_chat.bind_tools([get_weather, add], tool_choice=choice, max_tokens=40)
        reply = bound.invoke(question)
        (call,) = reply.tool_calls
        assert call["id"].startswith("call_")
        assert reply.response_metadata["finish_reason"] == "tool_calls"
        if isinstance(choice, dict):
            assert call["name"] == "add"
            assert {type(v) for v in call["args"].values()} == {int}


def test_streamed_tool_call_is_one_whole_chunk(demo_chat: ChatCacheFriendly) -> None:
    bound = demo_chat.bind_tools([get_weather], tool_choice="get_weather", max_tokens=40)
    chunks = list(bound.stream("Weather in Oslo?"))
    with_calls = [chunk for chunk in chunks if chunk.tool_call_chunks]
    assert len(with_calls) == 1
    assert chunks[-1].chunk_position == "last"
    whole = functools.reduce(lambda merged, chunk: merged + chunk, chunks)
    assert whole.tool_calls == with_calls[0].tool_calls
    assert whole.tool_calls == bound.invoke("Weather in Oslo?").tool_calls


@pytest.mark.parametrize("form", ["invoke", "astream"])
async def test_tool_loop_forwards_only_scaffold_and_result(
    demo_chat: ChatCacheFriendly, embedded: EmbeddingCount, form: str
) -> None:
    tools = [get_weather, add]
    history: list[BaseMessage] = [SYSTEM, HumanMessage("What is the weather in Paris?")]
    forced = demo_chat.bind_tools(tools, tool_choice="get_weather", max_tokens=40)
    asked = await ask(forced, history, form)
    taken(embedded)
    call = asked.tool_calls[0]
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    answered = await ask(demo_chat.bind_tools(tools), [*history, asked, result], form)
    assert cache_read(answered) == held_after(asked)
    assert taken(embedded) == forwarded_for(answered)


@pytest.mark.parametrize(
    ("method", "max_tokens"),
    [("json_schema", 64), ("json_schema", 30), ("function_calling", 46)],
)
def test_structured_output(demo_chat: ChatCacheFriendly, method: Any, max_tokens: int) -> None:
    model = demo_chat.with_structured_output(Person, method=method, max_tokens=max_tokens)
    person = model.invoke("Anna is 31 years old and likes chess and rowing.")
    assert isinstance(person, Person)
    raw = demo_chat.with_structured_output(
        Person.model_json_schema(), method=method, include_raw=True, max_tokens=max_tokens
    ).invoke("Anna is 31 years old and likes chess and rowing.")
    assert raw["parsing_error"] is None
    assert set(raw["parsed"]) == {"name", "age", "hobbies"}
    assert raw["raw"].usage_metadata["output_tokens"] <= max_tokens


async def test_structured_output_streams(demo_chat: ChatCacheFriendly) -> None:
    model = demo_chat.with_structured_output(Person, max_tokens=48)
    *_, last = [part async for part in model.astream("Bob is 8 and likes Lego.")]
    assert isinstance(last, Person)


def test_stop_and_seed(demo_chat: ChatCacheFriendly) -> None:
    text = demo_chat.invoke("Count from one to nine.").content
    stop = text[5:8]
    assert demo_chat.invoke("Count from one to nine.", stop=[stop]).content == text.split(stop)[0]
    sampled = {"temperature": 1.0, "seed": 7}
    assert (
        demo_chat.invoke("Invent a word.", **sampled).content
        == demo_chat.invoke("Invent a word.", **sampled, cache_namespace="other").content
    )


def test_namespaces_share_nothing(demo_chat: ChatCacheFriendly) -> None:
    demo_chat.invoke("Hello there.")
    other = {"configurable": {"cache_namespace": "somebody else"}}
    assert cache_read(demo_chat.invoke("Hello there.", other)) == 0
    assert cache_read(demo_chat.invoke("Hello there.")) > 0


async def test_an_early_closed_stream_leaves_what_it_showed(demo_chat: ChatCacheFriendly) -> None:
    history: list[BaseMessage] = [HumanMessage("Tell me a long story.")]
    shown = ""
    stream = demo_chat.stream(history)
    for chunk in stream:
        shown += chunk.text
        if len(shown) > 20:
            stream.close()
    follow_up = demo_chat.invoke([*history, AIMessage(shown), HumanMessage("Go on.")])
    prompt = demo_chat.get_num_tokens_from_messages(history)
    assert cache_read(follow_up) >= prompt + 3


async def test_concurrent_calls_equal_serial_ones(demo_chat: ChatCacheFriendly) -> None:
    questions = [f"What comes after {n}?" for n in range(5)]
    serial = [demo_chat.invoke(q, max_tokens=8).content for q in questions]
    replies = await asyncio.gather(*[demo_chat.ainvoke(q, max_tokens=8) for q in questions])
    assert [reply.content for reply in replies] == serial


def test_token_counting(demo_chat: ChatCacheFriendly) -> None:
    assert demo_chat.get_num_tokens("Hello there") == len(demo_chat.get_token_ids("Hello there"))
    messages = [SYSTEM, HumanMessage("Hello")]
    reply = demo_chat.bind_tools([add]).invoke(messages)
    counted = demo_chat.get_num_tokens_from_messages(messages, tools=[add])
    assert counted == reply.usage_metadata["input_tokens"]
    assert counted > demo_chat.get_num_tokens_from_messages(messages)


def test_deepcopy_shares_the_engine(demo_chat: ChatCacheFriendly) -> None:
    assert copy.deepcopy(demo_chat).engine is demo_chat.engine


def test_a_loaded_pipeline(demo_pair: tuple[Any, Any]) -> None:
    class Pipeline:
        model, tokenizer = demo_pair

    class HuggingFacePipeline:
        pipeline = Pipeline()
        model_id = "demo"
        pipeline_kwargs: Any = {"max_new_tokens": 3, "return_full_text": False}  # noqa: RUF012

    model = ChatCacheFriendly(llm=HuggingFacePipeline(), temperature=0)
    reply = model.invoke("Hello")
    assert reply.usage_metadata["output_tokens"] <= 3
    model.engine.close()


def test_classic_memory_over_three_turns(demo_chat: ChatCacheFriendly) -> None:
    prompt = ChatPromptTemplate.from_messages(
        [("system", SYSTEM.text), MessagesPlaceholder("history"), ("human", "{input}")]
    )
    memory = ConversationBufferMemory(return_messages=True)
    chain = prompt | demo_chat
    last: AIMessage | None = None
    for question in ("What is a comet?", "How big is it?", "How old?"):
        reply = chain.invoke({"input": question, **memory.load_memory_variables({})})
        assert cache_read(reply) == (held_after(last) if last else 0)
        memory.save_context({"input": question}, {"output": reply})
        last = reply


def test_memory_as_one_growing_string_reuses_up_to_the_last_common_token(
    demo_chat: ChatCacheFriendly,
) -> None:
    prompt = ChatPromptTemplate.from_template("{history}\nHuman: {input}\nAI:")
    memory = ConversationBufferMemory()
    chain = prompt | demo_chat
    replies = []
    for question in ("What is a comet?", "How big is it?", "How old?"):
        replies.append(chain.invoke({"input": question, **memory.load_memory_variables({})}))
        memory.save_context({"input": question}, {"output": replies[-1]})
    # The history is empty at first; then all but the generation prompt and where "AI:" goes on.
    assert cache_read(replies[2]) >= replies[1].usage_metadata["input_tokens"] - 8


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_runnable_with_message_history(demo_chat: ChatCacheFriendly) -> None:
    from langchain_core.runnables.history import RunnableWithMessageHistory

    from cachefriendly_lc import StateDiffChatMessageHistory

    histories: dict[str, StateDiffChatMessageHistory] = {}

    def history_of(session_id: str) -> StateDiffChatMessageHistory:
        return histories.setdefault(session_id, StateDiffChatMessageHistory())

    chat = RunnableWithMessageHistory(demo_chat, history_of)
    config: Any = {"configurable": {"session_id": "s"}}
    last: AIMessage | None = None
    for question in ("What is a fjord?", "Where?", "Why?"):
        reply = chat.invoke([HumanMessage(question)], config)
        assert cache_read(reply) == (held_after(last) if last else 0)
        last = reply
    assert len(histories["s"].messages) == 6


@pytest.mark.parametrize(
    ("messages", "kwargs", "kind", "error"),
    [
        ([], {}, RequestError, "message list is empty"),
        ([("narrator", "x")], {}, ValueError, "narrator"),
        ([HumanMessage([{"type": "image_url", "image_url": "u"}])], {}, RequestError, "image_url"),
        ([ToolMessage("4", tool_call_id="c9")], {}, RequestError, "'c9'"),
        ([HumanMessage("x")], {"temperature": -1.0}, RequestError, "temperature=-1"),
        ([HumanMessage("x")], {"top_p": float("nan")}, RequestError, "top_p=nan"),
        ([HumanMessage("x")], {"top_q": 1}, RequestError, "'top_q'; did you mean"),
        ([HumanMessage("x")], {"generation_kwargs": {"min_tokns": 1}}, RequestError, "min_tokns"),
        ([HumanMessage("word " * 9000)], {}, ContextOverflow, "context window"),
    ],
)
def test_unusable_input_is_named(
    demo_chat: ChatCacheFriendly, messages: Any, kwargs: Any, kind: type[Exception], error: str
) -> None:
    with pytest.raises(kind, match=error):
        demo_chat.invoke(messages, **kwargs)


def test_too_little_room_for_a_forced_call_is_named(demo_chat: ChatCacheFriendly) -> None:
    bound = demo_chat.bind_tools([get_weather], tool_choice="any", max_tokens=5)
    with pytest.raises(RequestError, match="max_tokens=5"):
        bound.invoke("Weather in Oslo?")


def test_bad_tool_schema_is_named(demo_chat: ChatCacheFriendly) -> None:
    parameters = {"type": "object", "properties": {"x": {"type": "strnig"}}}
    bad = {"type": "function", "function": {"name": "broken", "parameters": parameters}}
    with pytest.raises(SchemaError, match="broken"):
        demo_chat.bind_tools([bad], tool_choice="any").invoke("x")


def test_model_path(demo_engine: Engine) -> None:
    model = ChatCacheFriendly.from_model_id(
        demo_engine.model_name, task="text-generation", pipeline_kwargs={"max_new_tokens": 2}
    )
    assert model.model_name == demo_engine.model_name
