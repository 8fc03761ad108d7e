"""What holds on every call form: affinity, isolation, options, and the reply itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda

from cachefriendly import Engine
from cachefriendly.errors import RequestError
from cachefriendly.testing import ScriptedEngine, byte_tokenizer, tiny_model
from cachefriendly_lc import ChatCacheFriendly
from tests.lc.forms import FORMS
from tests.lc.usage import cache_read, held_after

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")

MESSAGES = [SystemMessage("Be brief."), HumanMessage("Hello")]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        yield engine


@pytest.fixture
def model(engine: Engine) -> ChatCacheFriendly:
    return ChatCacheFriendly(engine=engine, temperature=0, max_tokens=8)


def in_namespace(name: str, **more: Any) -> Any:
    return {"configurable": {"cache_namespace": name, **more}}


@pytest.mark.parametrize("form", FORMS)
async def test_namespaces_share_nothing(model: ChatCacheFriendly, form: str) -> None:
    call, mine, theirs = FORMS[form], in_namespace(f"{form} a"), in_namespace(f"{form} b")
    first = await call(model, MESSAGES, mine)
    assert cache_read(first) == 0
    assert cache_read(await call(model, MESSAGES, theirs)) == 0
    follow_up = [*MESSAGES, first, HumanMessage("Go on.")]
    # A handle of one namespace is not known in another: no ids, no keys, and the same words.
    strange = await call(model, follow_up, in_namespace(f"{form} c"))
    known = await call(model, follow_up, mine)
    assert cache_read(strange) == 0
    assert cache_read(known) == held_after(first)


@pytest.mark.parametrize("form", FORMS)
async def test_the_config_reaches_the_request(form: str) -> None:
    engine = ScriptedEngine("Hello.")
    model = ChatCacheFriendly(engine=engine)
    config = in_namespace("ns", thread_id=7, unknown=object(), another={"x": 1})
    for asked in (model, model.bind(max_tokens=3), RunnableLambda(lambda x: x) | model):
        if asked is model or not form.endswith("events_v3"):
            await FORMS[form](asked, MESSAGES, config)
    if not form.endswith("events_v3"):
        await FORMS[form](model.with_config(config), MESSAGES, {})
    assert {(r.session, r.namespace) for r in engine.requests} == {("7", "ns")}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("configurable", "error"),
    [
        ({"thread_id": 1.5}, r"configurable thread_id=1\.5 is float"),
        ({"thread_id": True}, "configurable thread_id=True is bool"),
        ({"cache_namespace": ["a"]}, r"configurable cache_namespace=\['a'\] is list"),
    ],
)
async def test_a_wrong_type_is_named(form: str, configurable: dict[str, Any], error: str) -> None:
    engine = ScriptedEngine("Hello.")
    with pytest.raises(RequestError, match=error):
        await FORMS[form](
            ChatCacheFriendly(engine=engine), MESSAGES, {"configurable": configurable}
        )
    assert not engine.requests


@pytest.mark.parametrize("form", FORMS)
async def test_the_reply_is_the_same(model: ChatCacheFriendly, form: str) -> None:
    wanted = model.invoke(MESSAGES)
    reply = await FORMS[form](model, MESSAGES, {})
    assert reply.text == wanted.text
    assert reply.response_metadata["cachefriendly"] == wanted.response_metadata["cachefriendly"]
    assert reply.usage_metadata["total_tokens"] == wanted.usage_metadata["total_tokens"]


@pytest.mark.parametrize("form", FORMS)
async def test_a_follow_up_forwards_what_is_new(model: ChatCacheFriendly, form: str) -> None:
    mine = in_namespace(f"follow {form}")
    first = await FORMS[form](model, MESSAGES, mine)
    second = await FORMS[form](model, [*MESSAGES, first, HumanMessage("Why?")], mine)
    assert cache_read(second) == held_after(first)
