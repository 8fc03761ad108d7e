"""Errors of a call are the engine's and LangChain's at once, on every call form."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRetryMiddleware, SummarizationMiddleware
from langchain_core import exceptions
from langchain_core.messages import HumanMessage

from cachefriendly import Engine, EngineConfig, errors
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, tiny_model
from cachefriendly_lc import ChatCacheFriendly
from cachefriendly_lc import errors as both
from tests.lc.forms import FORMS

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

needs_tree = pytest.mark.skipif(
    not hasattr(exceptions, "ModelError"), reason="langchain-core 1.6 brought the tree of errors"
)


@pytest.fixture(scope="module")
def small() -> Iterator[Engine]:
    """A window of 64 tokens."""
    with Engine(tiny_model("llama"), byte_tokenizer(), EngineConfig(context_window=64)) as engine:
        yield engine


@pytest.mark.parametrize("form", FORMS)
async def test_an_overflow_is_langchains(small: Engine, form: str) -> None:
    model = ChatCacheFriendly(engine=small)
    with pytest.raises(exceptions.ContextOverflowError, match="context window is 64") as caught:
        await FORMS[form](model, "word " * 40, {})
    assert isinstance(caught.value, errors.ContextOverflow)
    assert isinstance(caught.value, ValueError)


@needs_tree
@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda m: m.invoke([]), "ModelInvalidRequestError"),
        (lambda m: m.invoke("x", temprature=1), "ModelInvalidRequestError"),
        (lambda m: list(m.stream("x", temperature=-1)), "ModelInvalidRequestError"),
        (lambda m: m.invoke("x", tools=[{"type": "nothing"}]), "ModelInvalidRequestError"),
    ],
)
def test_a_refused_request_is_langchains(call: Any, kind: str) -> None:
    model = ChatCacheFriendly(engine=ScriptedEngine("Hello."))
    with pytest.raises(getattr(exceptions, kind)) as caught:
        call(model)
    assert isinstance(caught.value, errors.RequestError)
    assert not caught.value.is_retryable


@needs_tree
def test_what_may_pass_is_retried_and_what_will_not_is_not() -> None:
    retried = {kind for kind in both._BOTH.values() if kind.is_retryable}  # type: ignore[attr-defined]
    assert retried == {both.RowFailed, both.Timeout}


def test_every_error_of_a_call_has_a_twin() -> None:
    outside = {errors.ConfigError, errors.StateError, errors.MissingExtra}  # no call raises these
    named = {getattr(errors, name) for name in errors.__all__} - outside
    assert set(both._BOTH) == (named - {errors.CacheFriendlyError}) | {TimeoutError}
    for kind, twin in both._BOTH.items():
        assert issubclass(twin, kind)
        assert issubclass(twin, exceptions.LangChainException)
        error = pickle.loads(pickle.dumps(twin("what")))  # noqa: S301
        assert str(error) == "what"


def test_a_retry_middleware_asks_once_when_asking_again_is_useless() -> None:
    class Counting(ScriptedEngine):
        asked = 0

        def chat(self, request: Any, *, timeout: float | None = None) -> Any:
            self.asked += 1
            raise errors.EngineClosed("closed")

    engine = Counting("never")
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0, on_failure="error")
    agent = create_agent(ChatCacheFriendly(engine=engine), [], middleware=[retry])
    with pytest.raises(errors.EngineClosed):
        agent.invoke({"messages": [HumanMessage("Hello")]})
    assert engine.asked == (1 if hasattr(exceptions, "ModelError") else 3)


@needs_tree
def test_a_summary_that_does_not_fit_is_tried_shorter() -> None:
    """LangChain's summarizer shortens its text on its own overflow error only."""

    class Small(ScriptedEngine):
        def chat(self, request: Any, *, timeout: float | None = None) -> Any:
            if sum(len(message.content) for message in request.messages) > 9000:
                raise errors.ContextOverflow("too long")
            return super().chat(request, timeout=timeout)

    engine = Small("A summary.")
    model = ChatCacheFriendly(engine=engine)
    middleware = SummarizationMiddleware(
        model, trigger=("messages", 4), keep=("messages", 1), trim_tokens_to_summarize=None
    )
    agent = create_agent(model, [], middleware=[middleware])
    long = [HumanMessage("word " * 400) for _ in range(6)]
    done = agent.invoke({"messages": long})
    assert "A summary." in done["messages"][0].text
