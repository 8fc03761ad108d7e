"""`AnchoredPrompt` in LlamaIndex: one prefix whatever the values."""

from __future__ import annotations

from itertools import pairwise

from llama_index.core.base.llms.types import ChatMessage

from cachefriendly import Engine, Message
from cachefriendly.testing import byte_tokenizer, tiny_model
from cachefriendly_li import AnchoredPrompt, CacheFriendlyLLM
from cachefriendly_li.convert import message_from_llama_index, message_to_llama_index

PROMPT = AnchoredPrompt.from_template("You help [USER_ID_12]. It is [TIME_STAMP_19].")


def stamp(second: int) -> str:
    return f"2026-11-30 08:00:{second:02}"


def test_a_conversation_keeps_its_prefix_over_new_values() -> None:
    with Engine(tiny_model(), byte_tokenizer()) as engine:
        llm = CacheFriendlyLLM(engine=engine, max_new_tokens=4)
        history: list[ChatMessage] = []
        for turn in range(3):
            system = PROMPT.message(user_id="u-7", time_stamp=stamp(turn))
            history.append(ChatMessage(role="user", content=f"Question {turn}"))
            history.append(llm.chat([system, *history]).message)
        reports = engine.reports()
    assert all(report.losses == () for report in reports[1:])
    assert len({report.prefix_tokens for report in reports}) == 1
    for before, after in pairwise(reports):
        assert after.reused_tokens >= before.prompt_tokens


def test_values_survive_conversion_and_serialisation() -> None:
    sent = PROMPT.message(user_id="u-7", time_stamp=stamp(1))
    message = message_from_llama_index(ChatMessage.model_validate_json(sent.model_dump_json()))
    anchors = {"USER_ID_12": "u-7", "TIME_STAMP_19": stamp(1)}
    assert message == Message("system", PROMPT.text, anchors=anchors)
    assert message_to_llama_index(message) == sent
