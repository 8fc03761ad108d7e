"""One program under both imports: our memories give a chain what the classic ones give it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from types import ModuleType
from typing import Any

import langchain_classic.memory
import pytest
from langchain_classic.chains import ConversationChain
from langchain_classic.memory import ReadOnlySharedMemory
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from pydantic import Field

import cachefriendly_lc

# The classic classes are deprecated and say so.
pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")

TRIMMED = ("ConversationTokenBufferMemory", "ConversationSummaryBufferMemory")
BOTH = pytest.mark.parametrize("source", [langchain_classic.memory, cachefriendly_lc])


class Recorder(FakeListChatModel):
    """Answers by number, counts a word as a token, and remembers what it was sent."""

    responses: list[str] = Field(default_factory=lambda: [f"answer {i}" for i in range(100)])
    seen: list[list[BaseMessage]] = Field(default_factory=list)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen.append(messages)
        return super()._generate(messages, *args, **kwargs)

    def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
        return sum(len(message.text.split()) for message in messages)


def prompt_for(memory: Any) -> Any:
    if memory.return_messages:
        return ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{input}")])
    return PromptTemplate.from_template("{history}\n> {input}")


PROGRAMS: list[tuple[str, dict[str, Any]]] = [
    ("ConversationBufferMemory", {}),
    ("ConversationBufferMemory", {"human_prefix": "User", "ai_prefix": "Bot"}),
    ("ConversationBufferWindowMemory", {"k": 2}),
    ("ConversationBufferWindowMemory", {"k": 0}),
    ("ConversationTokenBufferMemory", {"llm": 0, "max_token_limit": 20}),
    ("ConversationTokenBufferMemory", {"llm": 0, "max_token_limit": 2}),
    ("ConversationSummaryMemory", {"llm": 0}),
    ("ConversationSummaryBufferMemory", {"llm": 0, "max_token_limit": 20}),
    ("ConversationSummaryBufferMemory", {"llm": 0, "moving_summary_buffer": "met before"}),
    ("ConversationSummaryBufferMemory", {"llm": 0, "summary_message_cls": HumanMessage}),
]


def run(source: ModuleType, name: str, options: dict[str, Any]) -> list[Any]:
    """Seven turns and a new beginning; everything a program can see of them."""
    summarizer = Recorder()
    model = Recorder()
    given = {key: summarizer if key == "llm" else value for key, value in options.items()}
    memory = getattr(source, name)(**given)
    chain = ConversationChain(llm=model, memory=memory, prompt=prompt_for(memory))
    trace: list[Any] = [memory.memory_variables]
    for turn in range(7):
        trace.append(chain.predict(input=f"question number {turn}, please"))
        # The stock classes hand out their live list, which later turns change.
        trace.append(deepcopy(memory.load_memory_variables({})))
        trace.append(deepcopy(memory.buffer))
    memory.clear()
    trace += [deepcopy(memory.load_memory_variables({})), chain.predict(input="again")]
    return [*trace, model.seen, summarizer.seen]


@pytest.mark.parametrize("return_messages", [True, False])
@pytest.mark.parametrize(("name", "options"), PROGRAMS)
def test_a_chain_sees_the_same(name: str, options: dict[str, Any], return_messages: bool) -> None:
    options = {**options, "return_messages": return_messages}
    stock = run(langchain_classic.memory, name, options)
    assert run(cachefriendly_lc, name, options) == stock
    assert len(stock[-2]) == 8


@pytest.mark.parametrize(
    "name", ["ConversationTokenBufferMemory", "ConversationSummaryBufferMemory"]
)
def test_the_same_steps_as_the_classic_ones_when_asked_for(name: str) -> None:
    options = {"llm": 0, "max_token_limit": 70, "return_messages": True}
    texts = [f"{'word ' * (turn % 5 * 4)}{turn}" for turn in range(12)]
    traces = []
    for source, more in ((langchain_classic.memory, {}), (cachefriendly_lc, {"trim_to": 1})):
        memory = getattr(source, name)(**{**options, "llm": Recorder()}, **more)
        traces.append([_saved(memory, text) for text in texts])
    assert traces[0] == traces[1]


def _saved(memory: Any, text: str) -> Any:
    memory.save_context({"input": text}, {"output": text})
    return deepcopy(memory.load_memory_variables({}))


ALL = [name for name in cachefriendly_lc.__all__ if name.startswith("Conversation")]


def made(source: ModuleType, name: str, **options: Any) -> Any:
    kind = getattr(source, name)
    return kind(**options, **({"llm": Recorder()} if "llm" in kind.model_fields else {}))


# What the classic classes' own tests check, in our words, for both of them.


@BOTH
@pytest.mark.parametrize("name", ALL)
def test_is_the_class_it_replaces(source: ModuleType, name: str) -> None:
    memory = made(source, name)
    assert isinstance(memory, getattr(langchain_classic.memory, name))
    assert set(getattr(langchain_classic.memory, name).model_fields) <= set(
        type(memory).model_fields
    )


@BOTH
@pytest.mark.parametrize("name", ALL)
def test_a_memory_is_empty_then_not_then_empty(source: ModuleType, name: str) -> None:
    memory = made(source, name, memory_key="chat")
    assert memory.load_memory_variables({}) == {"chat": ""}
    memory.save_context({"question": "foo"}, {"reply": "bar"})
    assert memory.load_memory_variables({})["chat"]
    memory.clear()
    assert memory.load_memory_variables({}) == {"chat": ""}


@BOTH
@pytest.mark.parametrize("name", ALL)
async def test_async_forms_of_an_empty_memory_and_a_cleared_one(
    source: ModuleType, name: str
) -> None:
    memory = made(source, name)
    assert await memory.aload_memory_variables({}) == {"history": ""}
    await memory.asave_context({"question": "foo"}, {"reply": "bar"})
    await memory.aclear()
    assert await memory.aload_memory_variables({}) == {"history": ""}


@BOTH
@pytest.mark.parametrize("name", ALL)
def test_one_input_and_one_output_must_be_named(source: ModuleType, name: str) -> None:
    memory = made(source, name, memory_key="chat")
    with pytest.raises(ValueError, match="One input key expected"):
        memory.save_context({"a": "1", "b": "2"}, {"reply": "x"})
    with pytest.raises(ValueError, match="Got multiple output keys"):
        memory.save_context({"a": "1"}, {"reply": "x", "other": "y"})
    assert memory.load_memory_variables({}) == {"chat": ""}
    named = made(source, name, memory_key="chat", input_key="a", output_key="reply")
    named.save_context({"a": "1", "b": "2"}, {"reply": "x", "other": "y"})
    assert named.load_memory_variables({})["chat"]


@BOTH
def test_memory_variables_and_stop_words_are_no_input(source: ModuleType) -> None:
    memory = source.ConversationBufferMemory(memory_key="chat")
    memory.save_context({"a": "1", "chat": "old", "stop": ["x"]}, {"reply": "2"})
    assert memory.buffer == "Human: 1\nAI: 2"


@BOTH
def test_a_chain_that_does_not_name_the_memory_is_refused(source: ModuleType) -> None:
    memory = source.ConversationBufferMemory(memory_key="chat")
    prompt = PromptTemplate.from_template("{history} {input}")
    with pytest.raises(ValueError, match="chat"):
        ConversationChain(llm=Recorder(), memory=memory, prompt=prompt)


@BOTH
def test_a_read_only_view_changes_nothing(source: ModuleType) -> None:
    memory = source.ConversationBufferMemory()
    memory.save_context({"a": "1"}, {"b": "2"})
    view = ReadOnlySharedMemory(memory=memory)
    view.save_context({"a": "3"}, {"b": "4"})
    view.clear()
    assert view.load_memory_variables({}) == {"history": "Human: 1\nAI: 2"}


@BOTH
def test_a_summary_of_given_messages(source: ModuleType) -> None:
    model = Recorder()
    history = source_history(source, ["one", "two", "three", "four", "five"])
    memory = source.ConversationSummaryMemory.from_messages(model, history, summarize_step=2)
    assert memory.buffer == "answer 2"
    assert len(model.seen) == 3
    memory.return_messages = True
    assert memory.load_memory_variables({}) == {"history": [SystemMessage("answer 2")]}


@BOTH
@pytest.mark.parametrize("name", ["ConversationSummaryMemory", "ConversationSummaryBufferMemory"])
def test_a_summary_prompt_without_its_variables_is_refused(source: ModuleType, name: str) -> None:
    with pytest.raises(ValueError, match="unexpected prompt input variables"):
        made(source, name, prompt=PromptTemplate.from_template("{summary} {lines}"))


def source_history(source: ModuleType, texts: Iterable[str]) -> Any:
    memory = source.ConversationBufferMemory()
    memory.chat_memory.add_messages([HumanMessage(text) for text in texts])
    return memory.chat_memory
