"""A conversation goes on in another process: the next prompt has the ids it would have had."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime

import pytest

from cachefriendly import ChatRequest, Message, Sampling
from cachefriendly.state import message_to_dict
from cachefriendly.testing import scripted_replies
from cachefriendly.testing.tokenizer import END_ID
from tests.prompt.another_process import SPELLED, dated_engine

EVENING, NEXT_DAY = datetime(2026, 11, 30, 23, 59, 58), datetime(2026, 12, 1, 8)


@pytest.fixture(scope="module")
def talk():
    """Two turns, the third question, the turns as text, and the ids of the prompt for it."""
    messages: list[Message] = []
    turns: list[str | None] = []
    with dated_engine(EVENING) as engine:
        for question in ("Really?", "Sure?"):
            messages.append(Message("user", question))
            request = ChatRequest(tuple(messages), sampling=Sampling(max_tokens=8))
            with scripted_replies([*SPELLED, END_ID]):
                result = engine.chat(request).result()
            assert result.message.content == "Yes"
            messages.append(result.message)
            turns.append(engine.export_turn(result.message.handle or ""))
        messages.append(Message("user", "Certain?"))
        ids = engine.prompt_ids(ChatRequest(tuple(messages)))
        assert engine.export_turn("cf1:0:0") is None
    return messages, turns, ids


def another_process(messages, turns):
    given = {
        "messages": [message_to_dict(message) for message in messages],
        "turns": turns,
        "now": NEXT_DAY.isoformat(),
    }
    ran = subprocess.run(
        [sys.executable, "-m", "tests.prompt.another_process"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_the_next_prompt_of_a_second_process_has_the_same_ids(talk):
    messages, turns, ids = talk
    there = another_process(messages, turns)
    assert there["taken"] == 2
    assert there["ids"] == list(ids)
    assert there["again"] == turns


def test_without_the_turns_text_and_date_decide(talk):
    """What the test above is about: neither ids nor date come back from the messages alone."""
    messages, _, ids = talk
    with dated_engine(NEXT_DAY) as engine:
        assert engine.export_turn(messages[1].handle or "") is None
        assert engine.import_turns([]) == 0
        found = engine.prompt_ids(ChatRequest(tuple(messages)))
    assert found != ids
