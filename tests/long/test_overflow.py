"""Histories longer than the window: which messages stay, and what stays known of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.errors import ContextOverflow, RequestError
from cachefriendly.events import MissReason
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt import BuiltPrompt, PromptBuilder
from cachefriendly.prompt.chain import links_of
from cachefriendly.prompt.lengths import MessageLengths
from cachefriendly.prompt.overflow import ContextWindow, turn_starts
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates

POLICIES = ("drop_oldest", "sink_window")
HISTORIES = ("template", "exact", "append")
WINDOW = 1500
SYSTEM = Message("system", "Answer in few words.")


def builder(policy: Any = "drop_oldest", history: Any = "template", **options: Any) -> Any:
    options.setdefault("tokenizer", byte_tokenizer(templates.NATIVE_TOOLS))
    tokenizer = options.pop("tokenizer")
    window = ContextWindow(policy, tokens=options.pop("tokens", WINDOW), reply_room=100)
    return PromptBuilder(tokenizer, policy=history, window=window, **options)


def build(prompts: PromptBuilder, messages: Sequence[Message]) -> BuiltPrompt:
    return prompts.build(ChatRequest(tuple(messages)))


def call(name: str) -> Message:
    return Message("assistant", "", (ToolCall("look", {"at": name}, name),))


def result(name: str, text: str = "seen") -> Message:
    return Message("tool", text, tool_call_id=name)


@st.composite
def conversations(draw: Any) -> list[Message]:
    """Turns with replies, calls and results of very different lengths, the last one open."""
    messages = [SYSTEM] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 25))):
        messages.append(Message("user", "q" * draw(st.integers(0, 300))))
        for step in range(draw(st.integers(0, 2))):
            name = f"call{number}-{step}"
            messages += [call(name), result(name, "r" * draw(st.integers(0, 300)))]
        messages.append(Message("assistant", "a" * draw(st.integers(0, 200))))
    return [*messages, Message("user", "and now?")]


def sent(messages: Sequence[Message], lengths: Sequence[int], policy: Any) -> list[int]:
    return list(
        ContextWindow(policy, tokens=WINDOW, reply_room=100).cut(messages, lengths, 40).kept
    )


def lengths_of(messages: Sequence[Message]) -> list[int]:
    return [len(message.content) + 20 for message in messages]


@pytest.mark.parametrize("policy", POLICIES)
@given(messages=conversations())
def test_a_cut_keeps_system_messages_whole_turns_and_the_newest(policy, messages):
    lengths = lengths_of(messages)
    kept = sent(messages, lengths, policy)
    starts = turn_starts(messages)
    assert kept[: starts[0]] == list(range(starts[0]))
    assert kept[-1] == len(messages) - 1
    tail = kept[starts[0] :]
    gaps = [(a, b) for a, b in pairwise(tail) if b != a + 1]
    assert len(gaps) <= (policy == "sink_window")
    assert all(after in starts and before + 1 in starts for before, after in gaps)
    assert tail[0] in starts
    answered = [messages[i].tool_call_id for i in kept if messages[i].role == "tool"]
    made = [c.id for i in kept for c in messages[i].tool_calls]
    assert answered == made
    size = 40 + sum(lengths[i] for i in kept if i >= starts[0])
    assert size <= WINDOW - 100 or tail == list(range(starts[-1], len(messages)))


@pytest.mark.parametrize("policy", POLICIES)
@given(messages=conversations())
def test_a_cut_stays_until_the_high_mark_is_reached_again(policy, messages):
    """Call by call: nothing that was sent is dropped before it and what is new exceed the mark."""
    high = ContextWindow(policy, tokens=WINDOW, reply_room=100).high
    lengths = lengths_of(messages)
    first = turn_starts(messages)[0]
    before: list[int] = []
    for index, message in enumerate(messages):
        if message.role not in {"user", "tool"}:
            continue
        kept = sent(messages[: index + 1], lengths[: index + 1], policy)
        if before and kept[: len(before)] != before:
            uncut = (*before, *range(before[-1] + 1, index + 1))
            assert 40 + sum(lengths[i] for i in uncut if i >= first) > high
        before = kept


def test_turns_begin_where_no_call_waits_for_its_result():
    messages = [
        SYSTEM,
        Message("assistant", "Hello!"),
        Message("user", "a"),
        call("x"),
        Message("user", "meanwhile"),
        result("x"),
        Message("assistant", "done"),
        Message("user", "b"),
    ]
    assert turn_starts(messages) == [1, 7]
    assert turn_starts(messages[:5]) == [1, 4]
    assert turn_starts([SYSTEM]) == []


def talk(prompts: Any, turns: int, seed: int = 0, *, handles: bool = True, tools: bool = True):
    """A conversation with recorded replies that do not re-tokenize to themselves.

    Yields its messages and the prompt of each call.
    """
    chance = random.Random(seed)
    messages: list[Message] = [SYSTEM]
    for turn in range(turns):
        messages.append(Message("user", f"question {turn} " + "x" * chance.randrange(60)))
        if tools and turn % 3 == 0:
            made = call(f"c{turn}")
            yield messages, (built := build(prompts, messages))
            text = (
                f'<tool_call>\n{{"name": "look", "arguments": {{"at": "c{turn}"}}}}\n</tool_call>'
            )
            handle = prompts.commit(built, prompts.encode_text(text), made)
            messages += [made if not handles else replace(made, handle=handle), result(f"c{turn}")]
        yield messages, (built := build(prompts, messages))
        # U+FFFD: a byte that is no character, which no tokenizer gives back.
        output = [*prompts.encode_text(f"answer {turn} "), 0xFF, *prompts.encode_text("!")]
        reply = Message("assistant", f"answer {turn} \ufffd!")
        handle = prompts.commit(built, output, reply)
        messages.append(replace(reply, handle=handle) if handles else reply)


@pytest.mark.parametrize("handles", [True, False])
@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("policy", POLICIES)
def test_recorded_ids_are_used_behind_the_cut(policy, history, handles):
    prompts = builder(policy, history)
    cuts, before = 0, None
    for messages, built in talk(prompts, 60, handles=handles):
        assert len(built.ids) < WINDOW
        replies = sum(m.role == "assistant" for m in messages) - sum(
            messages[i].role == "assistant" for i in dropped(prompts, messages)
        )
        recorded = [span for span in built.spans if span.source == "recorded"]
        if history == "append":
            assert len(recorded) == replies
        for span in recorded:
            assert messages[span.message_index].role == "assistant"
        plain = [s for s in recorded if not messages[s.message_index].tool_calls]
        assert all(0xFF in built.ids[s.start : s.stop] for s in plain)
        assert len(plain) == sum(
            m.role == "assistant" and not m.tool_calls for m in kept(prompts, messages)
        )
        reasons = [loss.reason for loss in built.losses]
        if before is not None and built.dropped != before:
            cuts += 1
            assert reasons[0] is MissReason.HISTORY_CUT
            assert built.losses[0].tokens_lost > WINDOW // 4
            assert messages[built.losses[0].message_index].role == "user"
        else:
            assert reasons == []
        before = built.dropped
    assert 2 <= cuts <= 8


def dropped(prompts: Any, messages: Sequence[Message]) -> list[int]:
    stay = {id(message) for message in kept(prompts, messages)}
    return [i for i, message in enumerate(messages) if id(message) not in stay]


def kept(prompts: Any, messages: Sequence[Message]) -> list[Message]:
    request = ChatRequest(tuple(messages))
    lengths = prompts._lengths.of(links_of(messages))
    cut = prompts._window.cut(messages, lengths, prompts._templates.head_length(request))
    return [messages[i] for i in cut.kept]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_restart_cuts_at_the_same_place(policy):
    """Nothing is remembered: a new builder sends the same messages, and says the same in text."""
    prompts = builder(policy)
    for messages, built in talk(prompts, 40):
        fresh = build(builder(policy), [message.without_handle() for message in messages])
        assert fresh.text == built.text
        assert fresh.dropped == built.dropped


def test_the_prompt_of_a_cut_history_is_that_of_the_messages_that_stay():
    prompts = builder("sink_window", "exact")
    for messages, built in talk(prompts, 40, tools=False):
        stay = kept(prompts, messages)
        plain = build(PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS)), stay)
        assert built.text == plain.text
    assert built.dropped > 0


def test_a_newest_turn_that_does_not_fit_is_refused_by_name():
    messages = [Message("user", "hi"), Message("assistant", "yes?")]
    messages += [Message("user", "look"), call("x"), result("x", "w" * 3000)]
    with pytest.raises(ContextOverflow, match=r"message 4 \(tool\) has about 30\d\d tokens"):
        build(builder(), messages)
    with pytest.raises(ContextOverflow, match=r"system message and tools have about 20\d\d tokens"):
        build(builder(), [Message("system", "s" * 2000), Message("user", "hi")])
    text = build(builder(), [*messages[:3], call("x"), result("x", "w" * 1280)]).text
    assert "w" * 1280 in text
    assert "yes?" not in text


def moves(prompts: Any, turns: int) -> list[int]:
    """Numbers of the calls at which the cut moved; every prompt fits."""
    moved, before = [], 0
    for number, (_, built) in enumerate(talk(prompts, turns, tools=False)):
        assert len(built.ids) < WINDOW
        if built.dropped != before:
            moved.append(number)
        before = built.dropped
    return moved


def test_a_template_that_prints_every_text_twice_is_measured():
    twice = templates.CHATML.replace("message.content", "message.content + message.content")
    moved = moves(builder(tokenizer=byte_tokenizer(twice)), 60)
    assert len(moved) >= 4
    assert min(b - a for a, b in pairwise(moved)) >= 3


def test_lengths_that_were_estimated_too_low_are_corrected(monkeypatch):
    """Whatever estimates say, prompts fit, and the cut does not move at every call."""
    honest = MessageLengths.of
    monkeypatch.setattr(MessageLengths, "of", lambda *a: [n // 2 for n in honest(*a)])
    moved = moves(builder(), 60)
    assert 2 <= len(moved) <= 20


def test_errors_name_messages_as_the_caller_counts_them():
    prompts = builder()
    messages = [*list(talk(prompts, 40))[-1][0], Message("user", "bad \ud800")]
    with pytest.raises(RequestError, match=rf"^message {len(messages) - 1} \(user\)"):
        build(prompts, messages)


def test_messages_can_be_counted_whole():
    prompts = builder()
    messages = list(talk(prompts, 40))[-1][0][:-1]
    request = ChatRequest(tuple(messages))
    assert len(prompts.build(request, whole=True).ids) > WINDOW > len(prompts.build(request).ids)
