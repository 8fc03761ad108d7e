"""Tools that are added to a running conversation are announced, and nothing before them moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cachefriendly import Engine, EngineConfig, Sampling
from cachefriendly.events import MissReason
from cachefriendly.messages import Message, Tool
from cachefriendly.prompt import PromptBuilder
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, embedding_counter, templates, tiny_model
from tests.prompt.driver import WEATHER

NEWS = Tool("news", "News of a <|im_end|> day", {"type": "object", "properties": {}}, late=True)
ANNOUNCED = (
    '[further tool news]: {"type": "function", "function": {"name": "news", "description": '
    '"News of a <|im_end|> day", "parameters": {"type": "object", "properties": {}}}}\n\n'
)
YES = Message("assistant", "Yes")


class Chat:
    """Keeps a history without blocks, as frameworks do."""

    def __init__(self, policy="template"):
        self.builder = PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS), policy=policy)
        self.history: list[Message] = []
        self.held: tuple[int, ...] = ()

    def say(self, text, *tools):
        self.history.append(Message("user", text))
        built = self.builder.build(ChatRequest(tuple(self.history), tools=tools, session="s"))
        output = self.builder.encode_text("Yes")
        self.history.append(replace(YES, handle=self.builder.commit(built, output, YES)))
        self.held, held = built.ids + tuple(output), self.held
        assert built.ids[: len(held)] == held, "what was held is kept"
        return built.text, built.losses


@pytest.mark.parametrize("policy", ["template", "exact", "append"])
def test_a_late_tool_is_announced_with_the_newest_user_message_and_stays_there(policy):
    chat = Chat(policy)
    first, _ = chat.say("One", WEATHER)
    second, losses = chat.say("Two", WEATHER, NEWS)
    third, _ = chat.say("Three", NEWS, WEATHER)
    assert losses == ()
    head = first.partition("<|im_start|>user")[0]
    assert "get_weather" in head
    assert second.startswith(head)
    assert f"user\n{ANNOUNCED}Two<|im_end|>" in second
    assert f"user\n{ANNOUNCED}Two<|im_end|>" in third
    assert third.count("further tool") == 1


def test_control_tokens_in_an_announcement_stay_text():
    chat = Chat()
    chat.say("One", WEATHER)
    end = chat.builder.tokens.encode("<|im_end|>")
    structural = chat.held.count(end[0])
    chat.say("Two", WEATHER, NEWS)
    assert chat.held.count(end[0]) == structural + 2  # the reply's and the user's, no third


def test_a_late_tool_that_is_offered_no_longer_is_said_to_be_gone():
    chat = Chat()
    chat.say("One", WEATHER)
    other = replace(NEWS, name="letters")
    chat.say("Two", WEATHER, NEWS, other)
    text, _ = chat.say("Three", WEATHER, other)
    assert "user\n[further tool news]: (not available any more)\n\nThree" in text


def test_without_other_tools_late_ones_are_printed_by_the_template():
    chat = Chat()
    text, _ = chat.say("One", NEWS)
    assert "further tool" not in text
    assert "news" in text.partition("<|im_start|>user")[0]


def test_tools_that_are_not_marked_are_printed_and_cost_the_prefix():
    """The layout is opt-in; the way back is not to mark them."""
    builder = PromptBuilder(byte_tokenizer(templates.NATIVE_TOOLS))
    talk = [Message("user", "One")]
    built = builder.build(ChatRequest(tuple(talk), tools=(WEATHER,)))
    handle = builder.commit(built, builder.encode_text("Yes"), YES)
    talk += [replace(YES, handle=handle), Message("user", "Two")]
    built = builder.build(ChatRequest(tuple(talk), tools=(WEATHER, replace(NEWS, late=False))))
    assert [loss.reason for loss in built.losses] == [MissReason.TOOLS_CHANGED]
    assert "further tool" not in built.text


def test_case_9_only_the_new_tool_is_prefilled_at_turn_five():
    """ggml-org/llama.cpp#22746: one tool more, and the whole conversation was read again."""
    engine = Engine(
        tiny_model("llama"), byte_tokenizer(templates.NATIVE_TOOLS), EngineConfig(check_model=False)
    )
    history: list[Message] = []
    with engine, embedding_counter(engine.model) as counter:
        for number in range(6):
            tools = (WEATHER, NEWS) if number >= 4 else (WEATHER,)
            history.append(Message("user", f"Question {number}"))
            request = ChatRequest(
                tuple(history), tools=tools, session="s", sampling=Sampling(max_tokens=4, seed=1)
            )
            before = counter.tokens
            result = engine.chat(request).result()
            history.append(result.message)
            forwarded = counter.tokens - before
            report = result.report
            assert report.prefilled_tokens + report.generated_tokens - 1 == forwarded
            added = f"<|im_end|>\n<|im_start|>user\nQuestion {number}<|im_end|>\n"
            added += "<|im_start|>assistant\n"
            turn = len(engine.token_ids(added)) + 1  # and the token sampled last
            said = len(engine.token_ids(ANNOUNCED.replace("<|im_end|>", "x" * 10)))
            if number:
                assert report.prefilled_tokens == turn + (said if number == 4 else 0)
                assert report.losses == ()
