"""A thread of an agent on a real forward, with everything its model calls forwarded.

Replies are spelled as no tokenizer spells them: those ids can only come from the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from cachefriendly import ChatResult, Engine
from cachefriendly.prefix import common_prefix
from cachefriendly.testing import (
    EmbeddingCount,
    embedding_counter,
    scripted_replies,
    templates,
    tiny_model,
)
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly, StateDiffAgentState
from tests.lc.tool_box import add
from tests.lc.usage import forwarded_for, taken
from tests.prompt.another_process import SPELLED, merged_tokenizer

__all__ = ["CONFIG", "Thread", "asking", "held", "thread_on"]

CONFIG: Any = {"configurable": {"thread_id": "t"}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


class Thread:
    """An agent on a real forward that calls a tool at every question, and all its model calls."""

    def __init__(self, model: ChatCacheFriendly, agent: Any, embedded: EmbeddingCount) -> None:
        self.model, self.agent, self.engine = model, agent, model.engine
        self.calls: list[ChatResult] = []
        self._embedded = embedded
        self._call = [*self.engine.tokenizer(CALL).input_ids, END_ID]

    def run(self, value: Any, config: Any = CONFIG, *, calls: bool = True) -> list[ChatResult]:
        """Invoke the agent; its new model calls, each checked against all earlier ones."""
        scripts = [self._call] if calls else []
        started: list[Any] = []
        chat = self.engine.chat
        self.engine.chat = lambda *a, **k: started.append(chat(*a, **k)) or started[-1]  # type: ignore[method-assign,func-returns-value]
        try:
            with scripted_replies(*scripts, [*SPELLED, END_ID]):
                done = self.agent.invoke(value, config)
        finally:
            self.engine.chat = chat  # type: ignore[method-assign]
        results = [call.result() for call in started]
        replies = [m for m in done["messages"] if m.type == "ai"][-len(results) :]
        background = sum(result.report.background_prefilled_tokens for result in results)
        assert taken(self._embedded) == sum(map(forwarded_for, replies)) + background
        for result in results:
            self._check(result)
        return results

    def _check(self, result: ChatResult) -> None:
        """Only what no earlier call held was forwarded, and the last token of the prompt."""
        shared = (common_prefix(result.prompt_ids, held(call)) for call in self.calls)
        expected = min(max(shared, default=0), len(result.prompt_ids) - 1)
        report = result.report
        assert report.reused_tokens - report.background_prefilled_tokens == expected
        self.calls.append(result)

    def history(self) -> list[Any]:
        return list(self.agent.get_state_history(CONFIG))

    def prompt_ids(self, state: Any) -> tuple[int, ...]:
        request = self.model._prepare(state.values["messages"], None, {"tools": [add]}).request
        return self.engine.prompt_ids(request)


def held(call: ChatResult) -> tuple[int, ...]:
    """What a call left behind: all but the token sampled last, here always a stop token."""
    return (*call.prompt_ids, *call.output_ids)


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, **fields)]}


@contextmanager
def thread_on(saver: Any, *, middleware: bool = False, **options: Any) -> Iterator[Thread]:
    """The agent on a new engine: what it knows of earlier calls it has from the saver."""
    engine = Engine(tiny_model(vocab_size=1001), merged_tokenizer(templates.NATIVE_TOOLS))
    with engine, embedding_counter(engine.model) as embedded:
        model = ChatCacheFriendly(engine=engine, max_tokens=120)
        agent = create_agent(
            model,
            [add],
            state_schema=StateDiffAgentState,
            checkpointer=saver,
            middleware=[CacheFriendlyMiddleware(model)] if middleware else [],
            **options,
        )
        yield Thread(model, agent, embedded)
