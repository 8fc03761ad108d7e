"""What tracers hear of a document chat engine: what they hear of the stock one, call by call."""

from __future__ import annotations

import json
from typing import Any

import llama_index.core.chat_engine as stock
import pytest
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.types import BaseOutputParser
from pydantic import Field

import cachefriendly_li as ours
from cachefriendly.messages import Message
from cachefriendly.testing import ScriptedEngine
from cachefriendly_li import CacheFriendlyLLM, ChatMemoryBuffer
from tests.li.documents import FORMS, WordRetriever, ask

ENGINES = ["ContextChatEngine", "CondensePlusContextChatEngine"]
# One place of the code each; the stock engines pack their nodes twice and have a program between.
NOT_TOLD = ("TokenTextSplitter", "DefaultRefineProgram")
# A question is condensed behind the conversation, which is a chat and no completion.
SAME = {"LLMCompletionStartEvent": "LLMChatStartEvent", "LLMCompletionEndEvent": "LLMChatEndEvent"}
SAME_SPANS = {"complete": "chat", "acomplete": "achat"}


class Heard(BaseEventHandler):
    events: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self.events.append(event)

    def names(self) -> list[str]:
        names = (event.class_name() for event in self.events)
        return sorted(SAME.get(name, name) for name in names)

    def named(self, name: str) -> list[Any]:
        return [event for event in self.events if event.class_name() == name]


class Told:
    """An engine with everything that it tells: events, spans, callbacks."""

    def __init__(self, module: Any, name: str, *, parser: Any = None, **options: Any) -> None:
        replies = [Message("assistant", f"Answer {n}.", handle=f"cf1:0:{n}") for n in range(8)]
        self.scripted = ScriptedEngine(*replies)
        self.debug, self.heard, self.spans = (
            LlamaDebugHandler(print_trace_on_end=False),
            Heard(),
            SimpleSpanHandler(),
        )
        manager = CallbackManager([self.debug])
        retriever = WordRetriever()
        retriever.callback_manager = manager
        buffer = ChatMemoryBuffer if module is ours else StockChatMemoryBuffer
        self.memory = buffer.from_defaults(token_limit=3000)
        self.engine = getattr(module, name).from_defaults(
            retriever,
            llm=CacheFriendlyLLM(engine=self.scripted, output_parser=parser),
            memory=self.memory,
            **{"system_prompt": "Be brief.", **options},
        )
        self.engine.callback_manager = manager

    async def ask(self, form: str, *questions: str) -> list[Any]:
        dispatcher = get_dispatcher()
        dispatcher.add_event_handler(self.heard)
        dispatcher.add_span_handler(self.spans)
        try:
            return [await ask(self.engine, form, question) for question in questions]
        finally:
            dispatcher.event_handlers.remove(self.heard)
            dispatcher.span_handlers.remove(self.spans)

    def span_names(self) -> set[str]:
        names = {span.id_.partition("-")[0] for span in self.spans.completed_spans}
        methods = {name.partition(".")[2] for name in names if not name.startswith(NOT_TOLD)}
        return {SAME_SPANS.get(method, method) for method in methods}

    def callbacks(self) -> set[str]:
        return {event.event_type.value for event in self.debug.get_events()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ENGINES)
async def test_tracers_hear_what_they_hear_of_the_stock_engine(name: str, form: str) -> None:
    told = [Told(module, name) for module in (stock, ours)]
    for each in told:
        await each.ask(form, "Where is the pool?", "And breakfast?")
    theirs, own = told
    if form.endswith("stream") and not theirs.heard.named("StreamChatDeltaReceivedEvent"):
        pytest.skip("the stock engine of an older core waits for the whole answer")
    assert own.heard.names() == theirs.heard.names()
    assert own.span_names() == theirs.span_names()
    assert own.callbacks() == theirs.callbacks()


@pytest.mark.parametrize("form", FORMS)
async def test_the_template_is_told_with_what_it_was_filled_with(form: str) -> None:
    told = Told(ours, "ContextChatEngine", context_template="Know: {context_str} Do: {query_str}")
    await told.ask(form, "Where is the pool? {x}")
    (event,) = told.heard.named("LLMPredictStartEvent")
    json.dumps(event.model_dump(mode="json"))
    assert event.template.get_template() == "Know: {context_str} Do: {query_str}"
    assert event.template_args["query_str"] == "Where is the pool? {x}"
    assert "on the roof" in event.template_args["context_str"]


class Shouting(BaseOutputParser):
    """Asks for capitals, and makes the answer so."""

    def format(self, query: str) -> str:
        return f"{query} IN CAPITALS"

    def parse(self, output: str) -> str:
        return output.upper()


@pytest.fixture(params=[{}, {"system_prompt": None}], ids=["system", "no system"])
def shouting(request: Any) -> Told:
    return Told(ours, "ContextChatEngine", parser=Shouting(), **request.param)


@pytest.mark.parametrize("form", ["chat", "achat"])
async def test_an_output_parser_is_asked_for_instructions_and_for_the_answer(
    shouting: Told, form: str
) -> None:
    answers = await shouting.ask(form, "Where is the pool?", "And breakfast, then?")
    assert [str(answer) for answer in answers] == ["ANSWER 0.", "ANSWER 1."]
    first, second = (request.messages for request in shouting.scripted.requests)
    place = 0 if first[0].role == "system" else -1
    for messages in (first, second):
        assert messages[place].content.endswith(" IN CAPITALS")
        assert sum("IN CAPITALS" in message.content for message in messages[place:]) == 1
    assert second[: len(first)] == first  # what was sent is replayed as it was
    assert [m.content for m in shouting.engine.chat_history[::2]] == [
        "Where is the pool?",
        "And breakfast, then?",
    ]


@pytest.mark.parametrize("form", ["stream", "astream"])
async def test_an_output_parser_cannot_stream(shouting: Told, form: str) -> None:
    with pytest.raises(NotImplementedError, match="not supported for streaming"):
        await shouting.ask(form, "Where is the pool?")
