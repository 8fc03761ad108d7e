"""`AnchoredPrompt` in LangChain: one prefix whatever the values, through chains and agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.messages import (
    HumanMessage,
    SystemMessage,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

from cachefriendly import Engine, Message, RequestError
from cachefriendly.prompt.bindings import block_text
from cachefriendly.testing import byte_tokenizer, tiny_model
from cachefriendly_lc import AnchoredPrompt, ChatCacheFriendly
from cachefriendly_lc.convert import message_from_langchain, message_to_langchain

PROMPT = AnchoredPrompt.from_template("You help [USER_ID_12]. It is [TIME_STAMP_19].")


def stamp(second: int) -> str:
    return f"2026-11-30 08:00:{second:02}"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(tiny_model(), byte_tokenizer()) as engine:
        yield engine


@pytest.fixture
def model(engine: Engine) -> ChatCacheFriendly:
    return ChatCacheFriendly(engine=engine, temperature=0, max_tokens=4)


def new_turn(engine: Engine, block: str, text: str) -> int:
    words = f"<|im_end|>\n<|im_start|>user\n{block}{text}<|im_end|>\n<|im_start|>assistant\n"
    return engine.count_tokens(words)


def test_a_chain_keeps_its_prefix_over_new_values(engine: Engine, model: ChatCacheFriendly) -> None:
    chat = ChatPromptTemplate.from_messages(
        [PROMPT.as_template(), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    assert set(chat.input_variables) == {"user_id", "time_stamp", "history", "question"}
    history: list[Any] = []
    known = 0
    for turn in range(3):
        values = {"user_id": "u-7", "time_stamp": stamp(turn), "question": f"Question {turn}"}
        config: Any = {"configurable": {"thread_id": "chain"}}
        reply = (chat | model).invoke({**values, "history": history}, config)
        report = engine.last_report
        assert report is not None
        assert report.reused_tokens >= known
        if turn:
            block = block_text({"TIME_STAMP_19": stamp(turn)})
            # A reply that was cut has one token without keys.
            assert report.prefilled_tokens <= new_turn(engine, block, f"Question {turn}") + 1
            assert report.losses == ()
        known = report.prompt_tokens
        history += [HumanMessage(f"Question {turn}"), reply]


def test_an_agent_that_makes_its_prompt_anew(engine: Engine, model: ChatCacheFriendly) -> None:
    clock = iter(range(60))

    @dynamic_prompt
    def now(request: Any) -> SystemMessage:
        return PROMPT.message(user_id="u-7", time_stamp=stamp(next(clock)))

    agent = create_agent(model, [], middleware=[now])
    state: dict[str, Any] = {"messages": []}
    lengths = set()
    for turn in range(3):
        state["messages"].append(HumanMessage(f"Question {turn}"))
        state = agent.invoke(state, {"configurable": {"thread_id": "agent"}})
        report = engine.last_report
        assert report is not None
        assert not turn or report.losses == ()
        lengths.add(report.prefix_tokens)
    assert len(lengths) == 1


def test_values_survive_conversion_and_serialisation() -> None:
    sent = PROMPT.message(user_id="u-7", time_stamp=stamp(1))
    assert isinstance(sent, SystemMessage)
    (stored,) = messages_from_dict([message_to_dict(sent)])
    message = message_from_langchain(stored)
    anchors = {"USER_ID_12": "u-7", "TIME_STAMP_19": stamp(1)}
    assert message == Message("system", PROMPT.text, anchors=anchors)
    assert message_to_langchain(message) == sent
    assert message_from_langchain(SystemMessage("x")).anchors == {}


def test_a_template_takes_its_values_in_parts() -> None:
    template = ChatPromptTemplate.from_messages([PROMPT.as_template()])
    values = {"user_id": "u-7", "time_stamp": stamp(1)}
    assert template.format_messages(**values) == [PROMPT.message(**values)]
    assert template.partial(user_id="u-7").format_messages(time_stamp=stamp(1)) == [
        PROMPT.message(**values)
    ]
    assert "[USER_ID_12]" in template.pretty_repr()


def test_a_value_that_is_too_wide_is_named() -> None:
    template = ChatPromptTemplate.from_messages([PROMPT.as_template()])
    with pytest.raises(RequestError, match=r"anchor \[USER_ID_12\].* 13 characters"):
        template.format_messages(user_id="x" * 13, time_stamp="")
