"""Cases 10 and 11 of CASES.md through the whole engine: a value that changes costs its block."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cachefriendly import AnchoredPrompt, ChatRequest, Engine, Message, MissReason
from cachefriendly.prompt.bindings import block_text
from cachefriendly.state import message_to_dict
from cachefriendly.testing import byte_tokenizer, cold_generate, tiny_model
from tests.engine.cases import ask

PROMPT = AnchoredPrompt.from_template("You help [USER_ID_12]. It is [TIME_STAMP_23]. Be brief.")
MEMORY = AnchoredPrompt.from_template("You remember what stands under [MEMORY_400].")


def stamp(milliseconds: int) -> str:
    return f"2026-11-30 23:59:59.{milliseconds:03}"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
        yield engine


def new_turn(engine: Engine, values: dict[str, str], text: str) -> int:
    """Tokens of turn close, block, user turn and generation prompt."""
    block = block_text(values)
    return len(
        engine.token_ids(
            f"<|im_end|>\n<|im_start|>user\n{block}{text}<|im_end|>\n<|im_start|>assistant\n"
        )
    )


def test_case_10_a_millisecond_timestamp_keeps_the_prefix(engine: Engine) -> None:
    history: list[Message] = []
    known, reports = 0, []
    for turn in range(4):
        system = PROMPT.message(user_id="u-7", time_stamp=stamp(turn))
        history.append(Message("user", f"Question {turn}"))
        result = ask(engine, [system, *history], "An answer.", session="ten")
        reports.append(result.report)
        assert result.report.reused_tokens == known
        if turn:
            values = {"TIME_STAMP_23": stamp(turn)}
            new = new_turn(engine, values, f"Question {turn}")
            assert result.report.prefilled_tokens == new
            assert result.report.losses == ()
        known = len(result.prompt_ids) + len(result.output_ids)
        history.append(result.message)
    assert len({report.prefix_tokens for report in reports}) == 1
    assert reports[0].prefix_tokens > len(engine.token_ids(PROMPT.text))


def test_case_10_without_an_anchor_the_report_names_text_and_field(engine: Engine) -> None:
    talk = [Message("user", "One")]
    for turn in range(2):
        system = Message("system", f"It is {stamp(turn)}. Be brief.")
        result = ask(engine, [system, *talk], "An answer.", namespace="plain")
        talk += [result.message, Message("user", "Two")]
    (loss,) = result.report.losses
    assert (loss.reason, loss.field, loss.message_index) == (MissReason.VOLATILE_FIELD, "system", 0)
    assert (stamp(0) in loss.before, stamp(1) in loss.after) == (True, True)
    assert "AnchoredPrompt" in loss.fix
    assert loss.tokens_lost > len(engine.token_ids("Be brief."))


def test_case_11_an_edited_memory_block_is_prefilled_alone(engine: Engine) -> None:
    notes = ["Likes tea.", "Likes tea.\nHas a dog.", "Likes tea.\nHas a dog.", "Likes coffee."]
    history: list[Message] = []
    said = ""
    for turn, note in enumerate(notes):
        history.append(Message("user", f"Question {turn}"))
        talk = [MEMORY.message(memory=note), *history]
        result = ask(engine, talk, "Noted.", session="eleven")
        values = {} if note == said else {"MEMORY_400": note}
        if turn:
            new = new_turn(engine, values, f"Question {turn}")
            assert result.report.prefilled_tokens == new
        history.append(result.message)
        said = note


def test_a_retry_forwards_one_token_and_answers_as_a_cold_model(engine: Engine) -> None:
    history = [Message("user", "One")]
    first = ask(engine, [PROMPT.message(user_id="a", time_stamp=stamp(1)), *history], "Yes.")
    history += [first.message, Message("user", "Two")]
    results = [
        ask(
            engine,
            [PROMPT.message(user_id="a", time_stamp=stamp(turn)), *history],
            "No.",
            session="retry",
        )
        for turn in (2, 3)
    ]
    assert results[1].prompt_ids == results[0].prompt_ids
    assert results[1].report.prefilled_tokens == 1
    request = ChatRequest((PROMPT.message(user_id="a", time_stamp=stamp(9)), *history))
    free = engine.chat(request).result()
    expected = cold_generate(engine.model, free.prompt_ids, max_new_tokens=len(free.output_ids))
    assert list(free.output_ids) == expected[: len(free.output_ids)]


def test_a_second_process_binds_at_the_same_places(engine: Engine) -> None:
    """What a restart makes of the turns is in `test_restart.py`; here it is the blocks."""
    program = """
import json, sys
from cachefriendly import ChatRequest, Engine
from cachefriendly.state import message_from_dict
from cachefriendly.testing import byte_tokenizer, tiny_model
given = json.loads(sys.stdin.read())
messages = tuple(map(message_from_dict, given["messages"]))
with Engine(tiny_model("llama"), byte_tokenizer()) as engine:
    assert engine.import_turns(given["turns"]) == len(given["turns"])
    sys.stdout.write(json.dumps(engine.prompt_ids(ChatRequest(messages))))
"""
    history: list[Message] = []
    for turn in range(2):
        history.append(Message("user", f"Question {turn}"))
        system = PROMPT.message(user_id="u-7", time_stamp=stamp(turn))
        history.append(ask(engine, [system, *history], "An answer.", session="two").message)
    messages = [
        PROMPT.message(user_id="u-7", time_stamp=stamp(500)), *history, Message("user", "And?"),
    ]  # fmt: skip
    turns = [engine.export_turn(message.handle) for message in history if message.handle]
    given = {"messages": [message_to_dict(message) for message in messages], "turns": turns}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == list(engine.prompt_ids(ChatRequest(tuple(messages))))
