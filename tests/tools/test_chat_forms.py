"""Tool conversations through the engine, on the public templates of models with odd forms.

A scripted reply, a tool's result, an answer: calls and ids as the model wrote them, reasoning
apart, and behind a result nothing is forwarded but the scaffold and the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cachefriendly import ChatRequest, Engine, EngineConfig, Message, Sampling, Tool, ToolCallReady
from cachefriendly.testing import scripted_replies, tiny_model
from cachefriendly.testing.template_tokenizer import END, template_tokenizer

FOLDER = Path(__file__).parents[2] / ".templates"
ADD = Tool(
    "add",
    "Add two integers",
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
SEP, BEGIN = "<\uff5ctool\u2581sep\uff5c>", "<\uff5ctool\u2581call{}\u2581begin\uff5c>"
FINISH = "<\uff5ctool\u2581call{}\u2581end\uff5c>"
SENTENCE = "<\uff5cend\u2581of\u2581sentence\uff5c>"
DSML = "\uff5cDSML\uff5c"


@dataclass(frozen=True)
class Talk:
    """A reply that calls ``add``, the token that ends it, and the answer behind the result."""

    template: str
    reply: str
    stop: str
    answer: str
    end: str
    model: str = "llama"
    content: str = ""
    reasoning: str | None = None
    call_id: str = ""
    arguments: tuple[tuple[str, Any], ...] = ()


TALKS = {
    "gpt-oss": Talk(
        "openai-gpt-oss-120b",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.add <|constrain|>json<|message|>{"a": 1, "b": 2}',
        "<|call|>",
        "<|channel|>analysis<|message|>Good.<|end|><|start|>assistant<|channel|>final<|message|>3",
        "<|return|>",
        model="gpt_oss",
        reasoning="Hm.",
    ),
    "Kimi K2": Talk(
        "moonshotai-Kimi-K2",
        "Let me see.<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0"
        '<|tool_call_argument_begin|>{"a": 1, "b": 2}<|tool_call_end|><|tool_calls_section_end|>',
        "<|im_end|>",
        "3",
        "<|im_end|>",
        content="Let me see.",
        call_id="functions.add:0",
    ),
    "DeepSeek V3.1": Talk(
        "deepseek-ai-DeepSeek-V3.1",
        f'{BEGIN.format("s")}{BEGIN.format("")}add{SEP}{{"a": 1, "b": 2}}'
        f"{FINISH.format('')}{FINISH.format('s')}",
        SENTENCE,
        "3",
        SENTENCE,
    ),
    "DeepSeek V3.2": Talk(
        "deepseek-ai-DeepSeek-V3.2",
        f'Hm.</think>\n\n<{DSML}function_calls>\n<{DSML}invoke name="add">\n'
        f'<{DSML}parameter name="a" string="false">1</{DSML}parameter>\n'
        f'<{DSML}parameter name="b" string="false">2</{DSML}parameter>\n'
        f"</{DSML}invoke>\n</{DSML}function_calls>",
        SENTENCE,
        "Good.</think>3",
        SENTENCE,
        reasoning="Hm.",
        arguments=(("thinking", True),),
    ),
    "Gemma 4": Talk(
        "google-gemma-4-31B-it",
        "<|channel>thought\nHm.\n<channel|><|tool_call>call:add{a:1,b:2}<tool_call|>",
        "<|tool_response>",
        "3",
        "<turn|>",
        reasoning="Hm.",
        arguments=(("enable_thinking", True),),
    ),
}


def made_engine(talk: Talk, history: str) -> Engine:
    source = (FOLDER / f"{talk.template}.jinja").read_text("utf-8")
    tokenizer = template_tokenizer(source)
    ids = tokenizer.get_added_vocab()
    model = tiny_model(talk.model, vocab_size=len(tokenizer), max_position_embeddings=131072)
    model.generation_config.eos_token_id = [ids[text] for text in {talk.stop, talk.end, END}]
    return Engine(model, tokenizer, EngineConfig(history=history))


@pytest.mark.parametrize("history", ["template", "append"])
@pytest.mark.parametrize("name", TALKS)
def test_call_result_answer(name: str, history: str) -> None:
    talk = TALKS[name]
    if not FOLDER.is_dir():
        pytest.skip("no public templates in .templates; run `make templates`")
    with made_engine(talk, history) as engine:
        ids = engine.tokenizer.get_added_vocab()
        stop, end = ids[talk.stop], ids[talk.end]
        options: dict[str, Any] = {"tools": (ADD,), "template_arguments": dict(talk.arguments)}
        said = [Message("system", "Be brief."), Message("user", "1+2?")]
        with scripted_replies([*engine.token_ids(talk.reply), stop]):
            call = engine.chat(ChatRequest(tuple(said), **options))
            events = list(call)
        first = call.result()
        (made,) = first.message.tool_calls
        assert (made.name, made.arguments) == ("add", {"a": 1, "b": 2})
        assert made.id == (talk.call_id or made.id)
        assert first.finish_reason == "tool_calls"
        assert (first.message.content, first.message.reasoning) == (talk.content, talk.reasoning)
        assert [event.call for event in events if isinstance(event, ToolCallReady)] == [made]

        said += [first.message, Message("tool", "3", tool_call_id=made.id, name="add")]
        with scripted_replies([*engine.token_ids(talk.answer), end]):
            second = engine.chat(ChatRequest(tuple(said), **options)).result()
        held = len(first.prompt_ids) + len(first.output_ids)
        assert second.prompt_ids[:held] == first.prompt_ids + first.output_ids
        assert second.report.prefilled_tokens == len(second.prompt_ids) - held
        assert second.message.content == "3"
        assert not second.message.tool_calls

        said += [second.message, Message("user", "And 2+3?")]
        third = engine.chat(
            ChatRequest(tuple(said), **options, sampling=Sampling(max_tokens=2, temperature=0))
        ).result()
        if history == "append":
            kept = second.prompt_ids + second.output_ids
            assert third.prompt_ids[: len(kept)] == kept
