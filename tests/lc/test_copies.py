"""Copies of a chat model, made in every way LangChain and Python make them, share one engine."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.load import dumpd, dumps, loads
from langchain_core.runnables import ConfigurableField, RunnableLambda

from cachefriendly import Engine
from cachefriendly.config import EngineConfig
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, tiny_model
from cachefriendly_lc import ChatCacheFriendly


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("checkpoints")
    for seed, name in enumerate(("first", "second")):
        tiny_model("llama", seed=seed).save_pretrained(folder / name)
        byte_tokenizer().save_pretrained(folder / name)
    return str(folder / "first"), str(folder / "second")


@pytest.fixture
def named(checkpoints: tuple[str, str]) -> ChatCacheFriendly:
    """Everything a model can be opened with by name."""
    return ChatCacheFriendly(
        model=checkpoints[0],
        model_kwargs={"dtype": "float32"},
        engine_config=EngineConfig(max_rows=4),
        temperature=0,
        max_tokens=6,
    )


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda model: model.model_copy(update={"seed": 1}),
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),  # noqa: S301
    "fields": lambda model: type(model)(
        **{name: getattr(model, name) for name in type(model).model_fields}
    ),
    "bind": lambda model: model.bind(temperature=0.5).bound,
    "retry": lambda model: model.with_retry().bound,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_shares_the_engine(named: ChatCacheFriendly, way: str) -> None:
    twin = COPIES[way](named)
    assert twin.engine is named.engine
    assert twin.invoke("Hello").content == named.invoke("Hello").content
    assert len(pickle.dumps(named)) < 4000
    named.engine.close()


def test_a_configured_field_keeps_the_engine(named: ChatCacheFriendly) -> None:
    warmth = ConfigurableField(id="warmth")
    model = named.configurable_fields(temperature=warmth, max_tokens=ConfigurableField(id="n"))
    plain = named.invoke("Hello")
    reply = model.invoke("Hello", {"configurable": {"warmth": 0.0, "n": 3, "thread_id": "t"}})
    assert plain.content.startswith(reply.content)
    assert reply.usage_metadata["output_tokens"] <= 3
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0
    named.engine.close()


def test_a_configured_model_is_another_model(
    named: ChatCacheFriendly, checkpoints: tuple[str, str]
) -> None:
    second = ChatCacheFriendly(model=checkpoints[1], temperature=0, max_tokens=6)
    wanted = second.invoke("Hello").content
    for original in (named, ChatCacheFriendly(engine=named.engine, temperature=0, max_tokens=6)):
        model = original.configurable_fields(model=ConfigurableField(id="model"))
        config: Any = {"configurable": {"model": checkpoints[1]}}
        assert model.invoke("Hello", config).content == wanted
        assert model.invoke("Hello").content == named.invoke("Hello").content != wanted
    named.engine.close()
    second.engine.close()


def test_a_model_that_calls_name_is_opened_once(
    named: ChatCacheFriendly, checkpoints: tuple[str, str]
) -> None:
    for _ in range(2):
        reply = named.invoke("Hello", model=checkpoints[1])
        assert reply.response_metadata["model_name"] == checkpoints[1]
    assert reply.usage_metadata["input_token_details"]["cache_read"] > 0
    named.engine.close()


def test_alternatives(named: ChatCacheFriendly) -> None:
    other = ScriptedEngine("other")
    model = named.configurable_alternatives(
        ConfigurableField(id="which"), other=ChatCacheFriendly(engine=other)
    )
    config: Any = {"configurable": {"which": "other", "thread_id": "t", "cache_namespace": "n"}}
    assert model.invoke("Hello", config).content == "other"
    assert [(r.session, r.namespace) for r in other.requests] == [("t", "n")]


def test_a_pickle_opens_the_engine_in_another_process(
    named: ChatCacheFriendly, tmp_path: Path
) -> None:
    (tmp_path / "model").write_bytes(pickle.dumps(named))
    program = (
        "import pickle, sys, pathlib\n"
        "model = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "assert 'not loaded' in repr(model.engine)\n"
        "print(model.invoke('Hello').content, end='')\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == named.invoke("Hello").content
    named.engine.close()


def test_what_holds_weights_is_not_pickled() -> None:
    class Pipeline:
        model, tokenizer = tiny_model("llama"), byte_tokenizer()

        def __reduce__(self) -> Any:
            raise AssertionError("nobody may pickle weights")

    class Llm:
        pipeline = Pipeline()
        pipeline_kwargs: Any = None

    for model, held in (
        (ChatCacheFriendly(llm=Llm()), "llm="),
        (ChatCacheFriendly(engine=Engine(tiny_model("llama"), byte_tokenizer())), "Engine"),
    ):
        for thing in (model, model.bind(stop=["x"]), model | RunnableLambda(print)):
            with pytest.raises(TypeError, match=f"{held}.* cannot be pickled"):
                pickle.dumps(thing)


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
def test_a_model_is_described_not_serialized(named: ChatCacheFriendly) -> None:
    """As the class it replaces: tracers get its class, never its engine."""
    for text in (dumps(named), dumps(named | RunnableLambda(str))):
        assert "not_implemented" in text
        assert "Engine" not in text
    assert dumpd(named)["id"][-1] == "ChatCacheFriendly"
    reply = named.invoke("Hello")
    assert loads(dumps(reply), allowed_objects="messages") == reply
    named.engine.close()
