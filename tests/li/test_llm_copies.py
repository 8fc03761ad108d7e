"""Copies of an LLM share its engine; a pickle names it. Weights are never copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager

from cachefriendly import Engine, EngineConfig
from cachefriendly.testing import ScriptedEngine, tiny_model
from cachefriendly_li import CacheFriendlyLLM
from tests.li.watch import TOKENIZER

UNCHECKED = EngineConfig(check_model=False)
HI = [ChatMessage("hi")]


def pickled(llm: Any) -> Any:
    text = pickle.dumps(llm)
    assert len(text) < 10_000
    return pickle.loads(text)  # noqa: S301


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "model_copy": lambda llm: llm.model_copy(update={"session_id": "s"}),
    "deep model_copy": lambda llm: llm.model_copy(deep=True),
    "pickle": pickled,
}


class Unpickled:
    """Stands for weights: nobody may copy or pickle it."""

    name_or_path = "loaded"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise AssertionError("weights were copied")

    __copy__ = __deepcopy__

    def __reduce__(self) -> Any:
        raise AssertionError("weights were pickled")


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_is_the_same_engine(tmp_path: Any, way: str) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    llm = CacheFriendlyLLM(
        str(tmp_path),
        device_map=None,
        max_new_tokens=4,
        generate_kwargs={"do_sample": False},
        cache_namespace="n",
        engine_config=UNCHECKED,
    )
    with llm.engine as engine:
        twin = COPIES[way](llm)
        assert twin.engine is engine
        assert (twin.cache_namespace, twin.max_new_tokens) == ("n", 4)
        assert twin.chat(HI).message.content == llm.chat(HI).message.content


@pytest.mark.parametrize("way", [way for way in COPIES if way != "pickle"])
def test_loaded_objects_are_shared_and_not_copied(way: str) -> None:
    llm = CacheFriendlyLLM(model=Unpickled(), tokenizer=Unpickled(), callback_manager=None)
    assert COPIES[way](llm)._source is llm._source
    given = CacheFriendlyLLM(engine=ScriptedEngine("Hello."))
    assert COPIES[way](given).engine is given.engine


def test_what_holds_weights_is_not_pickled() -> None:
    engine = Engine(tiny_model("llama"), TOKENIZER)
    for llm, held in (
        (CacheFriendlyLLM(model=Unpickled(), tokenizer="t"), "model= .a loaded object."),
        (CacheFriendlyLLM("m", tokenizer=Unpickled()), "tokenizer= .a loaded object."),
        (CacheFriendlyLLM(engine=engine), "an Engine over loaded objects"),
    ):
        with pytest.raises(TypeError, match=f"{held}.* cannot be pickled"):
            pickle.dumps(llm)


def test_a_pickle_of_an_open_engine_opens_it_by_name() -> None:
    engine = Engine.from_pretrained("some/model", config=UNCHECKED)
    llm = CacheFriendlyLLM(engine=engine, callback_manager=CallbackManager([]))
    assert pickled(llm).engine is engine
    del llm, engine
