"""Recorded calls that travel: constant size, exact ids in another builder, misses for the rest."""

from __future__ import annotations

import json
import logging
import zlib
from base64 import b85decode, b85encode
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from cachefriendly.messages import InvalidToolCall, Message, ToolCall
from cachefriendly.prompt import PromptBuilder, turn_text
from cachefriendly.prompt.overflow import ContextWindow
from cachefriendly.prompt.turn_text import TurnText
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.another_process import SPELLED, merged_tokenizer
from tests.prompt.driver import WEATHER, Conversation

YES = Message("assistant", "Yes")
VOCABULARY = 1001


class Travelling(Conversation):
    """A conversation that keeps the texts of its turns."""

    def __init__(self, builder, tools=(), **request):
        super().__init__(builder, tools, **request)
        self.turns: list[str] = []

    def reply(self, ids, parsed, returned=None):
        super().reply(ids, parsed, returned)
        handled = replace(self.messages[-1], handle=self.handle)
        self.messages[-1] = handled
        text = self.builder.turns.export(self.handle, "")
        assert text is not None
        self.turns.append(text)

    def moved_to(self, builder):
        """The same message list in front of another builder, which knows nothing yet."""
        other = Travelling(builder, self.tools, **self._request)
        other.messages, other.held = list(self.messages), self.held
        return other


def spelled_talk(template=templates.CHATML, turns=3, **options):
    chat = Travelling(PromptBuilder(merged_tokenizer(template), **options))
    for number in range(turns):
        chat.add("user", f"Question {number}?")
        chat.reply(SPELLED, YES)
    return chat


def taken(builder, texts, namespace=""):
    return builder.turns.take(texts, namespace, VOCABULARY)


def shown(built):
    """Everything of a prompt that a caller or a report sees."""
    return built.ids, built.text, built.spans, built.losses, built.snapshots_at, built.moment


def repacked(text, payload):
    """The text with another payload, and a check that fits it."""
    turn = replace(TurnText.read(text), packed=b85encode(zlib.compress(payload)).decode())
    return json.dumps({**json.loads(text), **asdict(turn), "check": turn.check()})


def forged(text, **changes):
    payload = json.loads(zlib.decompress(b85decode(TurnText.read(text).packed)))
    return repacked(text, json.dumps({**payload, **changes}).encode())


@pytest.mark.parametrize("order", ["oldest first", "newest first"])
def test_ids_that_no_tokenizer_gives_survive_in_any_order(order):
    chat = spelled_talk()
    other = chat.moved_to(PromptBuilder(merged_tokenizer()))
    texts = chat.turns if order == "oldest first" else chat.turns[::-1]
    assert taken(other.builder, texts) == 3
    assert taken(other.builder, texts) == 3
    for talk in (chat, other):
        talk.add("user", "And?")
        assert talk.new_ids()
    assert shown(other.prompt()) == shown(chat.prompt())


def test_without_the_turns_the_ids_are_lost():
    chat = spelled_talk()
    other = chat.moved_to(PromptBuilder(merged_tokenizer()))
    assert other.prompt().ids != chat.prompt().ids


def test_bytes_per_turn_do_not_grow():
    chat = Travelling(PromptBuilder(byte_tokenizer()))
    chat.add("system", "You are terse. " * 40)
    for number in range(200):
        chat.add("user", f"Question number {number:03}: what is {number:03} times three?")
        text = f"{number:03} times three is {3 * number:03}."
        chat.reply(list(text.encode()), Message("assistant", text))
    sizes = [len(text) for text in chat.turns]
    assert max(sizes[9:]) < 1.1 * min(sizes[9:]) < 900
    other = chat.moved_to(PromptBuilder(byte_tokenizer()))
    assert taken(other.builder, chat.turns[::-1]) == 200
    assert other.prompt().ids == chat.prompt().ids


def test_the_date_of_the_first_call_travels():
    evening = datetime(2026, 11, 30, 23, 59, 59, 999_999)
    chat = spelled_talk(templates.DATE_NEAR_START, now=lambda: evening)
    tokenizer = merged_tokenizer(templates.DATE_NEAR_START)
    other = chat.moved_to(PromptBuilder(tokenizer, now=lambda: evening + timedelta(hours=9)))
    assert other.prompt().moment != evening
    assert taken(other.builder, chat.turns) == 3
    assert "Today is 2026-11-30 23:59:59" in other.prompt().text
    assert shown(other.prompt()) == shown(chat.prompt())


def test_the_name_of_a_time_zone_travels():
    template = templates.DATE_NEAR_START.replace("%S", "%S %Z%z")
    moment = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    chat = spelled_talk(template, now=lambda: moment)
    other = chat.moved_to(PromptBuilder(merged_tokenizer(template)))
    assert taken(other.builder, chat.turns) == 3
    assert "12:00:00 CEST+0200" in other.prompt().text
    assert other.prompt().ids == chat.prompt().ids


def tool_talk(builder):
    chat = Travelling(builder, [WEATHER], template_arguments={"enable_thinking": True})
    chat.add("system", "Be brief, Zoë.")
    chat.add("user", "Weather in Ulm? <|im_end|>")
    raw = (
        '<tool_call>\n{"name":"get_weather","arguments":{"metric":false,"city":"Ulm"}}</tool_call>'
    )
    ids = builder.encode_text(raw)
    call = ToolCall("get_weather", {"metric": False, "city": "Ulm"}, "call_1")
    chat.reply(ids, Message("assistant", "", tool_calls=(call,), reasoning="hm"))
    chat.add("tool", "12 <tool_call>", tool_call_id="call_1")
    broken = InvalidToolCall("<tool_call>{", "no JSON", None, "call_2")
    chat.reply(
        builder.encode_text("It is 12."),
        Message("assistant", "It is 12.", invalid_tool_calls=(broken,)),
    )
    chat.add("user", "Thanks")
    return chat


def test_every_later_request_is_answered_as_if_nothing_had_happened():
    chat = tool_talk(PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS)))
    other = chat.moved_to(PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS)))
    assert taken(other.builder, chat.turns) == 2
    messages = list(chat.messages)
    later = {
        "goes on": (messages, chat.tools),
        "other tools": (messages, [replace(WEATHER, description="changed")]),
        "other system": ([Message("system", "Be long."), *messages[1:]], chat.tools),
        "edited reply": ([*messages[:4], Message("assistant", "13"), messages[5]], chat.tools),
        "removed": ([messages[0], *messages[3:]], chat.tools),
        "edited question": ([messages[0], Message("user", "?"), *messages[2:]], chat.tools),
        "no handles": ([message.without_handle() for message in messages], chat.tools),
    }
    later["removed"][0].pop(1)
    for name, (sent, tools) in later.items():
        for talk in (chat, other):
            talk.messages, talk.tools = list(sent), tuple(tools)
        assert shown(other.prompt()) == shown(chat.prompt()), name


def test_a_turn_that_was_read_is_written_as_it_was():
    chat = tool_talk(PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS)))
    other = PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS))
    assert taken(other, chat.turns) == 2
    handles = [message.handle for message in chat.messages if message.handle]
    assert [other.turns.export(handle, "") for handle in handles] == chat.turns


def test_a_cut_history_travels():
    def window():
        return ContextWindow("drop_oldest", tokens=120, reply_room=20)

    chat = spelled_talk(turns=12, window=window())
    chat.add("user", "And?")
    assert chat.prompt().dropped
    other = chat.moved_to(PromptBuilder(merged_tokenizer(), window=window()))
    assert taken(other.builder, chat.turns) == 12
    assert shown(other.prompt()) == shown(chat.prompt())


def test_an_edited_history_travels_without_what_it_was_edited_from():
    chat = spelled_talk()
    chat.messages[0] = Message("user", "Question zero?")
    chat.turns.clear()
    chat.add("user", "And?")
    chat.reply(SPELLED, YES)
    chat.add("user", "So?")
    chat.reply(SPELLED, YES)
    other = chat.moved_to(PromptBuilder(merged_tokenizer()))
    assert taken(other.builder, chat.turns) == 2
    assert other.prompt().ids == chat.prompt().ids


def test_what_is_missing_its_parents_is_a_miss(caplog):
    chat = spelled_talk()
    other = PromptBuilder(merged_tokenizer())
    assert taken(other, chat.turns[1:]) == 0
    assert "their parents are not here (2)" in caplog.text
    assert taken(other, chat.turns[:1]) == 1
    assert taken(other, chat.turns[1:]) == 2


def test_altered_and_torn_texts_are_misses(caplog):
    caplog.set_level(logging.ERROR)
    text = spelled_talk(turns=1).turns[0]
    builder = PromptBuilder(merged_tokenizer())
    for place in range(len(text)):
        for other in (chr(ord(text[place]) ^ 1), chr(ord(text[place]) ^ 32), ""):
            assert taken(builder, [text[:place] + other + text[place + 1 :]]) == 0
    for place in range(0, len(text), 7):
        assert taken(builder, [text[:place]]) == 0
    assert taken(builder, ["", "null", "[]", "{}", "\ud800", text + text, '{"format":1}']) == 0
    assert len(builder.transcript) == 0
    assert taken(builder, [text]) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"output": [VOCABULARY]},
        {"output": [-1]},
        {"output": ["89"]},
        {"output": [10**30]},
        {"output": [True]},
        {"own": [1, 2, 3]},
        {"own": []},
        {"output": SPELLED[:2]},
        {"shared": 3},
        {"shared": -1},
        {"messages": []},
        {"messages": [{"role": "user", "content": "Yes"}]},
        {"messages": [{"role": "assistant", "content": "No"}]},
        {"messages": 1},
        {"base": [1]},
        {"base": ["x", "y"]},
        {"inputs": ["00"]},
        {"inputs": None},
        {"moment": ["yesterday", None]},
        {"moment": [1]},
        {"chains": ["00"]},
        {"generation_prompt": 5},
        {"unknown": 1},
    ],
)
def test_forged_values_are_misses(changes):
    text = spelled_talk(turns=1).turns[0]
    builder = PromptBuilder(merged_tokenizer())
    assert taken(builder, [forged(text)]) == 1
    builder.forget("")
    assert taken(builder, [forged(text, **changes)]) == 0
    assert len(builder.transcript) == 0


def test_turns_of_others_are_misses(caplog):
    chat = spelled_talk(turns=1)
    assert taken(PromptBuilder(merged_tokenizer(templates.NATIVE_TOOLS)), chat.turns) == 0
    assert taken(PromptBuilder(byte_tokenizer()), chat.turns) == 0
    assert taken(PromptBuilder(merged_tokenizer(), model_fingerprint="other"), chat.turns) == 0
    assert caplog.text.count("another model, tokenizer or chat template (1)") == 3
    assert taken(PromptBuilder(merged_tokenizer()), chat.turns, namespace="other") == 0
    assert "another namespace" in caplog.text


def test_what_is_not_known_has_no_text():
    chat = spelled_talk(turns=1)
    assert chat.builder.turns.export(chat.handle, "other") is None
    assert chat.builder.turns.export("cf1:00000000:" + "0" * 32, "") is None
    chat.builder.forget("")
    assert chat.builder.turns.export(chat.handle, "") is None


@pytest.mark.parametrize("payload", [b" " * (1 << 20), b"null", b"[]", b"{", b"\xff", b""])
def test_a_payload_that_is_a_bomb_or_no_object_is_a_miss(monkeypatch, payload):
    monkeypatch.setattr(turn_text, "_MAX_PAYLOAD", 1 << 16)
    (text,) = spelled_talk(turns=1).turns
    assert taken(PromptBuilder(merged_tokenizer()), [repacked(text, payload)]) == 0
