"""Recognition, isolation, sharing and bounds of the transcript; policies at their edges."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from cachefriendly.events import MissReason
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt import PromptBuilder
from cachefriendly.prompt.chain import links_of
from cachefriendly.prompt.transcript import Transcript
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.driver import Conversation


def merged_tokenizer():
    """A vocabulary with the merge ``Y e``: ids of single letters are then never tokenized."""
    base = byte_tokenizer()
    state = json.loads(base.backend_tokenizer.to_str())
    state["model"]["vocab"]["Ye"] = 1000
    state["model"]["merges"] = [["Y", "e"]]
    core = Tokenizer.from_str(json.dumps(state))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = templates.CHATML
    return tokenizer


SPELLED = [ord("Y"), ord("e"), ord("s")]
YES = Message("assistant", "Yes")


@pytest.fixture
def chat():
    conversation = Conversation(PromptBuilder(merged_tokenizer()))
    assert conversation.builder.encode_text("Yes") != SPELLED
    conversation.add("user", "Well?")
    conversation.reply(SPELLED, YES)
    return conversation


def test_recognised_by_conversation_without_handle(chat):
    chat.add("user", "Sure?")
    assert chat.messages[1].handle is None
    assert chat.new_ids()


def test_recognised_by_content_when_the_system_message_changed(chat):
    chat.messages.insert(0, Message("system", "New rules"))
    chat.add("user", "Sure?")
    built = chat.prompt()
    assert [span.source for span in built.spans] == ["template", "recorded", "template"]
    recorded = built.spans[1]
    assert list(built.ids[recorded.start : recorded.stop]) == SPELLED
    assert recorded.message_index == 2
    assert built.losses[0].reason is MissReason.SYSTEM_CHANGED


def test_recognised_by_handle_in_another_conversation(chat):
    chat.messages = [
        Message("user", "Other"),
        Message("assistant", " Yes\n", handle=chat.handle),
        Message("user", "Sure?"),
    ]
    sources = [span.source for span in chat.prompt().spans]
    assert "recorded" in sources


def test_an_edited_reply_is_rendered_from_its_text(chat):
    chat.messages[1] = Message("assistant", "No", handle=chat.handle)
    chat.add("user", "Sure?")
    built = chat.prompt()
    assert [span.source for span in built.spans] == ["template"]
    (loss,) = built.losses
    assert loss.reason is MissReason.MESSAGE_EDITED
    assert (loss.message_index, loss.before, loss.after) == (1, "Yes", "No")
    assert loss.tokens_lost == len(SPELLED)


def test_a_forged_handle_is_ignored(chat):
    chat.messages[1] = Message("assistant", "No", handle="cf1:00000000:" + "0" * 32)
    chat.add("user", "Sure?")
    built = chat.prompt()
    assert all(span.source == "template" for span in built.spans)
    assert [loss.reason for loss in built.losses] == [MissReason.MESSAGE_EDITED]


def test_nothing_crosses_namespaces(chat):
    other = Conversation(chat.builder, namespace="other")
    other.messages = [Message("user", "Well?"), Message("assistant", "Yes", handle=chat.handle)]
    other.add("user", "Sure?")
    assert all(span.source == "template" for span in other.prompt().spans)
    chat.builder.forget("other")
    chat.add("user", "Sure?")
    assert chat.new_ids()
    chat.builder.forget("")
    assert len(chat.builder.transcript) == 0
    assert all(span.source == "template" for span in chat.prompt().spans)


def test_handles_are_named_after_content(chat):
    again = Conversation(PromptBuilder(merged_tokenizer()))
    again.add("user", "Well?")
    again.reply(SPELLED, YES)
    assert again.handle == chat.handle
    prefix, fingerprint, digest = chat.handle.split(":")
    assert (prefix, len(fingerprint), len(digest)) == ("cf1", 8, 32)


def test_a_removed_message_is_another_conversation(chat):
    chat.add("user", "Sure?")
    chat.reply([ord("N"), ord("o")], Message("assistant", "No"))
    del chat.messages[1:3]
    chat.add("user", "Really?")
    built = chat.prompt()
    assert "recorded" in [span.source for span in built.spans]
    (loss,) = built.losses
    assert (loss.reason, loss.message_index) == (MissReason.MESSAGE_REMOVED, 1)
    assert (loss.before, loss.after) == ("Yes", "No")
    kept = loss.first_differing_token
    assert built.ids[:kept] == chat.held[:kept]
    assert loss.tokens_lost == len(chat.held) - kept


def test_two_replies_to_one_prompt_are_both_kept(chat):
    handle = chat.handle
    request = ChatRequest((Message("user", "Well?"),))
    built = chat.builder.build(request)
    chat.builder.commit(built, [ord("N"), ord("o")], Message("assistant", "No"))
    chat.messages[1] = Message("assistant", "Yes", handle=handle)
    chat.add("user", "Sure?")
    assert chat.new_ids()


def test_records_share_what_they_extend():
    chat = Conversation(PromptBuilder(byte_tokenizer(templates.CHATML)))
    for turn in range(60):
        chat.add("user", f"question {turn}")
        chat.reply([65] * 5, Message("assistant", "AAAAA"))
    assert chat.builder.transcript.held_tokens < 2 * len(chat.held)
    assert chat.builder.transcript.recognise("", ()).latest is None


def test_the_bound_drops_idle_conversations_first():
    builder = PromptBuilder(byte_tokenizer(templates.CHATML), transcript=Transcript(600))
    for number in range(30):
        chat = Conversation(builder)
        for turn in range(2):
            chat.add("user", f"chat {number} turn {turn}")
            chat.reply([65], Message("assistant", "A"))
            assert builder.transcript.held_tokens <= 600 + len(chat.held)
        chat.add("user", "still known")
        assert chat.new_ids()
    assert len(builder.transcript) < 20


def test_append_notices_changed_inputs(chat):
    appending = Conversation(PromptBuilder(merged_tokenizer(), policy="append"))
    appending.messages = [Message("system", "Old"), Message("user", "Well?")]
    appending.reply(SPELLED, YES)
    appending.messages[0] = Message("system", "New")
    appending.add("user", "Sure?")
    built = appending.prompt()
    assert "New" in built.text
    assert built.losses[0].reason is MissReason.SYSTEM_CHANGED


def test_append_keeps_the_prompt_that_a_template_would_change():
    builder = PromptBuilder(byte_tokenizer(templates.LAST_MESSAGE_DIFFERS), policy="append")
    chat = Conversation(builder)
    for turn in range(3):
        chat.add("user", f"q{turn}")
        if turn:
            chat.new_ids()
        chat.reply([65], Message("assistant", "A"))


def test_template_names_the_change_it_made_to_a_user_message():
    chat = Conversation(PromptBuilder(byte_tokenizer(templates.LAST_MESSAGE_DIFFERS)))
    chat.add("user", "q")
    chat.reply([65], Message("assistant", "A"))
    chat.add("user", "r")
    (loss,) = chat.prompt().losses
    assert loss.reason is MissReason.TEMPLATE_REWROTE_HISTORY
    assert loss.before.startswith("[now]")
    assert loss.after.startswith("q")


class Ticking:
    def __init__(self) -> None:
        self.time = datetime(2026, 1, 1, 23, 59, 58)

    def __call__(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time


@pytest.mark.parametrize("clock", ["session", "day", "live"])
def test_clock(clock):
    ticking = Ticking()
    tokenizer = byte_tokenizer(templates.DATE_NEAR_START)
    chat = Conversation(PromptBuilder(tokenizer, clock=clock, now=ticking))
    chat.add("user", "q")
    chat.reply([65], Message("assistant", "A"))
    chat.add("user", "r")
    if clock == "session":
        chat.new_ids()
        assert "Today is 2026-01-01 23:59:59" in chat.prompt().text
        return
    ticking.time += timedelta(days=clock == "day")
    (loss,) = chat.prompt().losses
    assert (loss.reason, loss.field) == (MissReason.ARGUMENTS_CHANGED, "clock")


def test_empty_reply(chat):
    chat.add("user", "Say nothing")
    chat.reply([], Message("assistant", ""))
    chat.add("user", "Thanks")
    assert chat.new_ids()


def test_generation_prompt_that_opens_a_think_block():
    template = templates.CHATML.replace(
        "assistant\\n' -}}{%- endif", "assistant\\n<think>\\n' -}}{%- endif"
    )
    builder = PromptBuilder(byte_tokenizer(template))
    assert builder.build(ChatRequest((Message("user", "q"),))).reasoning_open
    assert (
        not PromptBuilder(byte_tokenizer())
        .build(ChatRequest((Message("user", "q"),)))
        .reasoning_open
    )


THOUGHT_IDS = [262, *b"\nSECRET\n", 263, *b"\n\nOK"]
THOUGHT = Message("assistant", "OK", reasoning="SECRET")


@pytest.fixture(params=["template", "exact", "append"])
def thinker(request):
    """One recorded reply with reasoning, in a conversation that asked ``A``."""
    builder = PromptBuilder(byte_tokenizer(templates.REASONING_DROPPED), policy=request.param)
    chat = Conversation(builder)
    chat.add("user", "A")
    chat.reply(THOUGHT_IDS, THOUGHT, returned=Message("assistant", "OK"))
    return chat


@pytest.mark.parametrize("reasoning", [None, "mine"])
def test_equal_content_brings_no_reasoning_of_another_conversation(thinker, reasoning):
    other = Conversation(thinker.builder)
    other.messages = [Message("user", "B"), Message("assistant", "OK", reasoning=reasoning)]
    text = other.prompt().text
    assert "SECRET" not in text
    assert ("mine" in text) is (reasoning is not None)
    other.add("user", "next")
    assert "SECRET" not in other.prompt().text
    assert "SECRET" not in str(other.prompt().losses)


def test_other_reasoning_under_the_handle_is_an_edit(thinker):
    thinker.messages[1] = Message("assistant", "OK", reasoning="mine", handle=thinker.handle)
    built = thinker.prompt()
    assert "<think>\nmine\n</think>" in built.text
    assert "SECRET" not in built.text
    (loss,) = built.losses
    assert (loss.reason, loss.message_index) == (MissReason.MESSAGE_EDITED, 1)
    assert (loss.field, loss.before, loss.after) == ("reasoning", "SECRET", "mine")


def test_two_replies_that_differ_in_reasoning_only(thinker):
    """The newest of them is not taken for the one that came back."""
    built = thinker.builder.build(ChatRequest((thinker.messages[0],)))
    ids = [262, *b"\nother\n", 263, *b"\n\nOK"]
    thinker.builder.commit(built, ids, Message("assistant", "OK", reasoning="other"))
    thinker.messages[1] = Message("assistant", "OK", reasoning="SECRET")
    thinker.add("assistant", "and more")
    text = thinker.prompt().text
    assert "SECRET" in text
    assert "other" not in text
    thinker.messages[1] = Message("assistant", "OK", reasoning="SECRET", handle=thinker.handle)
    assert thinker.new_ids()


@pytest.mark.parametrize("policy", ["template", "exact", "append"])
def test_a_record_does_not_change_with_the_message_it_was_made_of(policy):
    builder = PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS), policy=policy)
    chat = Conversation(builder)
    chat.add("user", "q")
    arguments = {"a": [True, {"b": ""}]}
    call = ToolCall("f", arguments, "call_1")
    chat.reply(list(b"R"), Message("assistant", "", tool_calls=(call,)))
    arguments["a"][1]["b"] = "MUTATED"
    as_made = ToolCall("f", {"a": [True, {"b": ""}]}, "call_1")
    chat.messages[1] = Message("assistant", "", tool_calls=(as_made,), handle=chat.handle)
    chat.add("tool", "r", tool_call_id="call_1")
    assert "MUTATED" not in chat.prompt().text
    (record,) = builder.transcript.recognise("", links_of(chat.messages)).known.values()
    assert record.reply.tool_calls == (as_made,)
