"""Every known token that a changed conversation cannot reuse has its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.events import Loss, MissReason
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt import PromptBuilder
from cachefriendly.prompt.transcript import Transcript
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.driver import WEATHER, Conversation

CALL = ToolCall("get_weather", {"city": "Ulm"}, "call_1")
TRAPS = sorted(set(templates.ALL) - {"DATE_NEAR_START", "LAST_MESSAGE_DIFFERS"})
EDITED, REMOVED = MissReason.MESSAGE_EDITED, MissReason.MESSAGE_REMOVED


@pytest.fixture(params=["demo", *TRAPS])
def tokenizer(request: Any, demo_tokenizer: Any) -> Any:
    name = request.param
    return demo_tokenizer if name == "demo" else byte_tokenizer(templates.ALL[name])


@pytest.fixture
def chat(tokenizer: Any) -> Conversation:
    """System, then three questions with their answers; what comes back has no handles."""
    conversation = Conversation(PromptBuilder(tokenizer))
    conversation.add("system", "Be brief.")
    for number in range(3):
        conversation.add("user", f"question {number}")
        say(conversation, f"answer {number}")
    return conversation


def say(chat: Conversation, text: str, **fields: Any) -> None:
    chat.reply(chat.builder.encode_text(text), Message("assistant", text, **fields))


def only_loss(chat: Conversation, held: Sequence[int] | None = None) -> Loss:
    """The one loss of the next call; its numbers say what the ids say."""
    held = chat.held if held is None else tuple(held)
    built = chat.prompt()
    (loss,) = built.losses
    kept = loss.first_differing_token
    assert built.ids[:kept] == held[:kept]
    assert built.ids[kept] != held[kept]
    assert loss.tokens_lost == len(held) - kept
    assert loss.fix
    assert built.provenance.shared == kept
    return loss


@pytest.mark.parametrize("index", [1, 3, 5])
def test_an_edited_user_message(chat, index):
    old = chat.messages[index].content
    chat.messages[index] = Message("user", "another " + old)
    chat.add("user", "next")
    loss = only_loss(chat)
    assert (loss.reason, loss.message_index, loss.field) == (EDITED, index, "content")
    assert (loss.before, loss.after) == (old, "another " + old)


@pytest.mark.parametrize("index", [2, 4, 6])
@pytest.mark.parametrize("handle", [None, "cf1:00000000:" + "0" * 32])
def test_an_edited_reply_without_its_handle(chat, index, handle):
    old = chat.messages[index].content
    chat.messages[index] = Message("assistant", "not so", handle=handle)
    chat.add("user", "next")
    loss = only_loss(chat)
    assert (loss.reason, loss.message_index, loss.field) == (EDITED, index, "content")
    assert (loss.before, loss.after) == (old, "not so")


@pytest.mark.parametrize(("first", "last"), [(1, 2), (3, 4), (1, 4), (2, 3)])
def test_removed_messages(chat, first, last):
    """Without the newest question this is what a sliding window or a trimmer does."""
    gone, moved = chat.messages[first].content, chat.messages[last + 1].content
    del chat.messages[first : last + 1]
    chat.add("user", "next")
    loss = only_loss(chat)
    assert (loss.reason, loss.message_index, loss.field) == (REMOVED, first, None)
    assert (loss.before, loss.after) == (gone, moved)


def test_a_window_that_slides_at_every_turn(chat):
    for number in range(3, 6):
        del chat.messages[1:3]
        chat.add("user", f"question {number}")
        assert only_loss(chat).reason is REMOVED
        say(chat, f"answer {number}")


@pytest.mark.parametrize("length", [2, 4, 6])
def test_going_back_in_time_is_no_loss(chat, length):
    """A known start, alone or with new messages behind it, uses all that it could."""
    handed = tuple(chat.messages)
    chat.messages[:] = handed[:length]
    assert chat.prompt().losses == ()
    chat.messages[:] = handed[: length - 1]
    chat.add("user", "something else")
    assert chat.prompt().losses == ()
    say(chat, "on a branch")
    chat.add("user", "further")
    chat.new_ids()
    chat.messages[:] = handed
    chat.add("user", "back on the trunk")
    assert chat.prompt().losses == ()


def test_an_edit_on_a_branch_is_compared_with_that_branch(chat):
    trunk = list(chat.messages)
    chat.messages[:] = trunk[:3]
    chat.add("user", "branch")
    say(chat, "leaf")
    chat.messages[3] = Message("user", "edited branch")
    chat.add("user", "next")
    loss = only_loss(chat)
    assert (loss.reason, loss.message_index, loss.before) == (EDITED, 3, "branch")


def test_a_branch_with_two_tool_results(chat):
    calls = (CALL, replace(CALL, id="call_2"))
    chat.tools = (WEATHER,)
    chat.messages.clear()
    chat.add("user", "Weather?")
    say(chat, "", tool_calls=calls)
    for result in ("sunny", "rainy"):
        del chat.messages[2:]
        chat.add("tool", result, tool_call_id="call_1")
        chat.add("tool", result, tool_call_id="call_2")
        reasons = {loss.reason for loss in chat.prompt().losses}
        assert not reasons & {EDITED, REMOVED}
        say(chat, f"It is {result}.")


@pytest.fixture
def agent() -> Conversation:
    conversation = Conversation(PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS)), [WEATHER])
    conversation.add("user", "Weather?")
    say(conversation, "", tool_calls=(CALL,))
    conversation.add("tool", "sunny", tool_call_id="call_1", name="get_weather")
    say(conversation, "Sun.")
    return conversation


EDITS: list[tuple[int, Callable[[Message], Message], str, str, str]] = [
    (1, lambda m: replace(m, tool_calls=(ToolCall("get_weather", {"city": "Bonn"}, "call_1"),)),
     "tool_calls", "Ulm", "Bonn"),
    (2, lambda m: replace(m, content="rainy"), "content", "sunny", "rainy"),
    (0, lambda m: replace(m, content="Climate?"), "content", "Weather?", "Climate?"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "edit", "field", "before", "after"), EDITS)
def test_what_was_edited_in_a_tool_loop(agent, index, edit, field, before, after):
    agent.messages[index] = edit(agent.messages[index])
    agent.add("user", "next")
    loss = only_loss(agent)
    assert (loss.reason, loss.message_index, loss.field) == (EDITED, index, field)
    assert before in loss.before
    assert after in loss.after


def test_a_field_that_the_template_does_not_print_costs_nothing(agent):
    agent.messages[2] = replace(agent.messages[2], name="radar")
    agent.add("user", "next")
    assert agent.prompt().ids[: len(agent.held)] == agent.held
    assert agent.prompt().losses == ()


def test_excerpts_begin_shortly_before_the_difference(agent):
    agent.messages[2] = replace(agent.messages[2], content="x" * 5000 + "sunny")
    say(agent, "Sun again.")
    agent.messages[2] = replace(agent.messages[2], content="x" * 5000 + "rainy")
    agent.add("user", "next")
    loss = agent.prompt().losses[0]
    assert (loss.before, loss.after) == ("x" * 40 + "sunny", "x" * 40 + "rainy")


def test_a_changed_system_message_comes_before_the_edit(chat):
    chat.messages[0] = Message("system", "Be verbose.")
    chat.messages[3] = Message("user", "edited")
    chat.add("user", "next")
    first, second = chat.prompt().losses
    assert (first.reason, second.reason) == (MissReason.SYSTEM_CHANGED, EDITED)
    assert first.tokens_lost > 0
    assert second.tokens_lost == 0


VOLATILE, SYSTEM = MissReason.VOLATILE_FIELD, MissReason.SYSTEM_CHANGED


@pytest.mark.parametrize(
    ("before", "after", "reasons"),
    [
        ("It is 12:00:01.", "It is 12:00:02.", [VOLATILE]),
        ("It is 12:00:01.", "It is 12:00:02. Be brief.", [VOLATILE, SYSTEM]),
        ("It is late.", "It is later.", [SYSTEM]),
    ],
)
def test_a_volatile_value_in_a_later_system_message(tokenizer, before, after, reasons):
    chat = Conversation(PromptBuilder(tokenizer))
    chat.add("system", "Be kind.")
    chat.add("system", before)
    for number in range(2):
        chat.add("user", f"question {number}")
        say(chat, f"answer {number}")
    chat.messages[1] = Message("system", after)
    chat.add("user", "next")
    losses = chat.prompt().losses
    assert [loss.reason for loss in losses] == reasons
    assert losses[0].tokens_lost > 0
    if reasons[0] is VOLATILE:
        assert (losses[0].message_index, losses[0].field) == (1, "system")
        assert (losses[0].before, losses[0].after) == (before, after)


def test_a_system_message_more_is_no_volatile_value(tokenizer):
    chat = Conversation(PromptBuilder(tokenizer))
    chat.add("system", "It is 12:00.")
    chat.add("user", "question")
    say(chat, "answer")
    chat.messages[0:1] = [Message("system", "It is 12:01."), Message("system", "Be kind.")]
    chat.add("user", "next")
    assert [loss.reason for loss in chat.prompt().losses] == [SYSTEM]


@pytest.fixture
def agents(tokenizer: Any) -> tuple[Conversation, Conversation]:
    """Two system messages over one history, in turns; each has been asked once."""
    builder = PromptBuilder(tokenizer)
    first, second = Conversation(builder), Conversation(builder)
    for name, chat in (("first", first), ("second", second)):
        chat.add("system", f"You are the {name}.")
    for chat in (first, second):
        take_turn(chat, first, second)
    return first, second


def take_turn(speaker: Conversation, *everybody: Conversation) -> None:
    for chat in everybody:
        chat.add("user", f"question {len(chat.messages)}")
    say(speaker, f"answer {len(speaker.messages)}")
    for chat in everybody:
        if chat is not speaker:
            chat.messages.append(speaker.messages[-1])


def test_agents_that_take_turns_lose_nothing_of_their_own(agents):
    first, second = agents
    for speaker in (first, second, first):
        before = speaker.held
        take_turn(speaker, first, second)
        assert speaker.held[: len(before)] == before
    for chat in agents:
        chat.add("user", "next")
        assert chat.prompt().losses == ()


def test_what_an_agent_loses_is_of_its_own_calls(agents):
    for speaker in agents:
        take_turn(speaker, *agents)
    first, second = agents
    first.messages[1] = Message("user", "edited")
    first.add("user", "next")
    loss = only_loss(first)
    assert (loss.reason, loss.message_index) == (EDITED, 1)
    second.messages[0] = Message("system", "You are the third.")
    second.add("user", "next")
    assert [loss.reason for loss in second.prompt().losses] == [SYSTEM]


def test_edits_are_not_compared_across_namespaces(chat):
    other = Conversation(chat.builder, namespace="other")
    other.messages = [*chat.messages, Message("user", "next")]
    other.messages[3] = Message("user", "edited")
    assert other.prompt().losses == ()
    assert other.prompt().provenance.parent is None


def test_another_conversation_with_the_same_reply_and_its_own_handle(chat):
    chat.messages = [
        Message("user", "unrelated"),
        Message("assistant", "answer 1", handle="cf1:00000000:" + "1" * 32),
        Message("user", "next"),
    ]
    assert chat.prompt().losses == ()


def test_a_start_falls_back_to_the_parent_when_the_newest_record_is_dropped():
    builder = PromptBuilder(byte_tokenizer(templates.CHATML), transcript=Transcript(10_000))
    chat = Conversation(builder)
    handed = []
    for number in range(2):
        chat.add("user", f"question {number}")
        say(chat, f"answer {number}")
        handed.append(chat.held)
    builder.transcript._drop(("", chat.handle))
    chat.messages[0] = Message("user", "edited")
    del chat.messages[2:]
    chat.add("user", "next")
    assert only_loss(chat, handed[0]).reason is EDITED
    builder.forget("")
    assert builder.transcript.held_tokens == 0
    assert not builder.transcript._by_start


def expected(old: Sequence[Message], new: Sequence[Message]) -> tuple[MissReason, int] | None:
    """By plain loops, for messages that are all different: the first difference, if it costs."""
    common = 0
    while common < min(len(old), len(new)) and old[common] == new[common]:
        common += 1
    replies = [message for message in new if message.role == "assistant"]
    findable = common > 0 or any(reply in old for reply in replies)
    continues = common == len(old) or not any(reply in new[common:] for reply in replies)
    if continues or not findable:
        return None
    return (REMOVED if new[common] in old[common:] else EDITED), common


CHANGE = st.tuples(st.sampled_from(["edit", "remove", "cut"]), st.integers(0, 7))


@given(st.lists(CHANGE, max_size=4))
def test_any_mix_of_edits_removals_and_cuts(changes):
    chat = Conversation(PromptBuilder(byte_tokenizer(templates.CHATML)))
    for number in range(4):
        chat.add("user", f"question {number}")
        say(chat, f"answer {number}")
    old = list(chat.messages)
    for number, (change, index) in enumerate(changes):
        if change == "cut":
            del chat.messages[index + 1 :]
        elif index < len(chat.messages) and change == "remove":
            del chat.messages[index]
        elif index < len(chat.messages):
            chat.messages[index] = replace(chat.messages[index], content=f"edit {number}")
    chat.add("user", "next")
    found = [(loss.reason, loss.message_index) for loss in chat.prompt().losses]
    wanted = expected(old, chat.messages)
    assert found == ([wanted] if wanted else [])
