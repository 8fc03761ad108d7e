"""Replies and next turns of model families, against the package ``renderers`` as an oracle.

Both sides get the same tokenizer: bytes with some merges, and the family's control tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cachefriendly.config import HistoryPolicy
from cachefriendly.errors import TemplateError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly.prompt import PromptBuilder
from cachefriendly.testing.template_survey import fitting_talk
from cachefriendly.testing.template_talk import MOMENT, TOOLS, Renderer, run_talk
from cachefriendly.testing.template_tokenizer import likely_control_tokens, template_tokenizer

configs = pytest.importorskip(
    "renderers.configs", reason="no oracle: pip install renderers==0.1.12"
)
create_renderer = pytest.importorskip("renderers.base").create_renderer

FOLDER = Path(__file__).parents[2] / ".templates"
if not FOLDER.is_dir():
    pytest.skip("no .templates/: run `make templates`", allow_module_level=True)


@dataclass(frozen=True)
class Family:
    """``added`` are control tokens that the template does not print, ``options`` switch thinking
    on where the renderer's default is off."""

    template: str
    added: tuple[str, ...] = ()
    bos: str = ""
    eos: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


_DEEPSEEK = {
    "bos": "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "eos": "<\uff5cend\u2581of\u2581sentence\uff5c>",
}
_THINKING = {"enable_thinking": True}
_GLM = ("[gMASK]", "<sop>", "<|endoftext|>")
_LAGUNA = {"added": ("\u3008|EOS|\u3009",), "options": _THINKING}
_V4 = (
    "<\uff5cAssistant\uff5c>",
    "<\uff5cUser\uff5c>",
    "<\uff5caction\uff5c>",
    "<\uff5cauthority\uff5c>",
    "<\uff5cdomain\uff5c>",
    "<\uff5clatest_reminder\uff5c>",
    "<\uff5cquery\uff5c>",
    "<\uff5cread_url\uff5c>",
    "<\uff5ctitle\uff5c>",
    "\uff5cDSML\uff5c",
)
FAMILIES = {
    "qwen3": Family("Qwen-Qwen3-0.6B", ("<|endoftext|>",)),
    "qwen3.5": Family("Qwen3.5-4B", ("<|endoftext|>",), options=_THINKING),
    "glm-4.5": Family("GLM-4.6", _GLM),
    "glm-5": Family("GLM-4.7-Flash", _GLM),
    "minimax-m2": Family("MiniMax-M2"),
    "nemotron-3": Family("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    "kimi-k2": Family("moonshotai-Kimi-K2"),
    "deepseek-v4": Family("deepseek-ai-DeepSeek-V4", _V4, **_DEEPSEEK, options=_THINKING),
    "deepseek-r1": Family("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", **_DEEPSEEK),
    "llama-3": Family(
        "meta-llama-Llama-3.2-3B-Instruct",
        ("<|end_of_text|>", "<|eom_id|>"),
        bos="<|begin_of_text|>",
    ),
    "gemma4": Family(
        "google-gemma-4-31B-it",
        ("<eos>", "<|image>", "<image|>"),
        bos="<bos>",
        options=_THINKING,
    ),
    "hy3": Family("tencent-Hy3", options={"reasoning_effort": "high"}),
    "laguna-xs.2": Family("poolside-Laguna-XS.2", **_LAGUNA),
    "laguna-xs-2.1": Family("poolside-Laguna-XS-2.1", **_LAGUNA),
    "laguna-s-2.1": Family("poolside-Laguna-S-2.1", **_LAGUNA),
}

WEATHER = ToolCall(
    "get_weather", {"city": "Z\u00fcrich \u6f22\u5b57 \U0001f389", "metric": True}, "callulm01"
)
PRODUCT = ToolCall("multiply", {"a": 6, "b": -2.5}, "callmul02")
REPLIES = {
    "text": Message("assistant", "Sun \u2014 and\n\n42.", reasoning="Both are known."),
    "typed": Message("assistant", "", (WEATHER,), reasoning="I need the weather."),
    "two": Message("assistant", "", (WEATHER, PRODUCT), reasoning="Both at once."),
    "text that looks like a value": Message(
        "assistant", "", (ToolCall("get_weather", {"city": "12"}, "callulm01"),), reasoning="Hm."
    ),
    "text before": Message("assistant", "Let me see.", (PRODUCT,), reasoning="Multiply."),
}
_SPELLED = "the template prints True; we read it by the tool's schema, the oracle leaves a text"
_NO_CONTENT = "the file prints calls of an assistant without content only, in a turn of their own"
_REFUSED = "the template refuses two calls"
PARSED_OTHERWISE: dict[str, dict[str, str]] = {
    "qwen3.5": dict.fromkeys(("typed", "two"), _SPELLED),
    "nemotron-3": dict.fromkeys(("typed", "two"), _SPELLED),
    "deepseek-r1": dict.fromkeys([kind for kind in REPLIES if kind != "text"], _NO_CONTENT),
    "llama-3": {"two": _REFUSED},
}
"""Family and reply -> why the readings differ. Stale entries fail."""

_NO_HEADER = "the file opens no assistant turn behind results, the oracle opens a thought"
_LINE = "the file closes a turn on a line of its own; the oracle closes where the reply ended"
BRIDGED_OTHERWISE: dict[str, str] = {
    "kimi-k2": "the file prints the role tool and a backslash with n; call ids are as it has them",
    "deepseek-r1": f"{_NO_HEADER}; and the file opens the results once",
    "gemma4": _NO_HEADER,
    "laguna-xs.2": _LINE,
    "laguna-xs-2.1": f"{_LINE}; and it is of a revision with lines around content",
}
"""Family -> why the next prompts differ. Stale entries fail."""

NO_ORACLE = {"gpt-oss": "openai-harmony fetches its vocabulary when it is made"}


@functools.cache
def family(name: str, retention: str = "all") -> tuple[Any, Any]:
    """Tokenizer and renderer; ``retention`` says when the oracle bridges to a next turn."""
    known = FAMILIES[name]
    source = (FOLDER / f"{known.template}.jinja").read_text(encoding="utf-8")
    named = {text for text in (known.bos, known.eos) if text}
    controls = {*likely_control_tokens(source), *known.added, *named}
    tokenizer = template_tokenizer(source, tuple(sorted(controls)))
    if known.bos:
        tokenizer.bos_token = known.bos
    if known.eos:
        tokenizer.eos_token = known.eos
    config = type(configs.config_from_name(name))(**known.options, thinking_retention=retention)
    return tokenizer, create_renderer(tokenizer, config)


def wire_tools() -> list[dict[str, Any]]:
    return [tool_to_openai(tool)["function"] for tool in TOOLS]


Reading = tuple[str, str, list[tuple[str, Any]]]


def read_by_both(name: str, reply: Message) -> tuple[Reading, Reading]:
    """Content, reasoning and calls as our dialect and as the oracle read the reply."""
    tokenizer, renderer = family(name)
    builder = PromptBuilder(tokenizer, now=lambda: MOMENT)
    talk = fitting_talk(builder)
    asked = [Message("user", "What is the weather, and what is six times that?")]
    built = builder.build(talk.request(asked))
    text = Renderer(builder.prepared(with_tools=True), talk).reply(asked, reply)
    dialect = builder.dialect
    parser = dialect.parser(
        id_seed="x", tools=TOOLS, reasoning_open=dialect.opens_reasoning(built.text)
    )
    parser.feed(text)
    ours = parser.finish()
    ids = tokenizer.encode(text, add_special_tokens=False)
    theirs = renderer.parse_response(ids, tools=wire_tools(), prompt_ids=list(built.ids))
    return (
        (
            ours.content.strip(),
            ours.reasoning or "",
            [(call.name, call.arguments) for call in ours.tool_calls],
        ),
        (
            theirs.content.strip(),
            (theirs.reasoning_content or "").strip(),
            [(call.name, call.arguments) for call in theirs.tool_calls],
        ),
    )


@pytest.mark.parametrize("kind", REPLIES)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_reply_is_read_as_the_oracle_reads_it(name: str, kind: str) -> None:
    reason = PARSED_OTHERWISE.get(name, {}).get(kind)
    if reason == _REFUSED:
        with pytest.raises(TemplateError):
            read_by_both(name, REPLIES[kind])
        return
    ours, theirs = read_by_both(name, REPLIES[kind])
    assert (ours == theirs) == (reason is None)
    if reason is None:
        assert ours[2] == [(call.name, call.arguments) for call in REPLIES[kind].tool_calls]


RETENTION: dict[HistoryPolicy, str] = {"append": "all", "template": "tool_cycle"}
"""The oracle's name for what a history policy does."""


def bridged(name: str, policy: HistoryPolicy) -> Iterator[tuple[str | None, str | None]]:
    """What our next prompt and the oracle's add to the same call; None: it is written anew."""
    tokenizer, renderer = family(name, RETENTION[policy])
    builder = PromptBuilder(tokenizer, policy=policy, now=lambda: MOMENT)
    steps = run_talk(builder, tokenizer, fitting_talk(builder))
    for before, step in pairwise(steps):
        held = len(step.held)
        ours = step.built.ids[held:] if step.kept == held else None
        stop = [i for i in (ours or ())[:1] if i in renderer.get_stop_token_ids()]
        theirs = renderer.bridge_to_next_turn(
            list(before.built.ids),
            [*step.held[len(before.built.ids) :], *stop],
            [wire(message) for message in step.messages[len(before.messages) + 1 :]],
            tools=wire_tools(),
        )
        if ours is not None and theirs is not None:
            assert tuple(theirs.token_ids[:held]) == step.held
        yield (
            None if ours is None else tokenizer.decode(ours),
            None if theirs is None else tokenizer.decode(theirs.token_ids[held:]),
        )


def wire(message: Message) -> dict[str, Any]:
    if message.role != "tool":
        return {"role": message.role, "content": message.content}
    return {
        "role": "tool",
        "content": message.content,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
    }


@pytest.mark.parametrize("name", FAMILIES)
def test_append_adds_what_the_oracle_adds(name: str) -> None:
    turns = list(bridged(name, "append"))
    assert all(ours and theirs for ours, theirs in turns)
    assert all(ours == theirs for ours, theirs in turns) == (name not in BRIDGED_OTHERWISE)


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - BRIDGED_OTHERWISE.keys()))
def test_template_goes_on_wherever_the_oracle_does(name: str) -> None:
    """The oracle writes anew at every question; we look whether the template changed anything."""
    for ours, theirs in bridged(name, "template"):
        assert theirs is None or ours == theirs


@pytest.mark.parametrize("name", NO_ORACLE)
def test_families_without_an_oracle(name: str) -> None:
    pytest.skip(NO_ORACLE[name])
