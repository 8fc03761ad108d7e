"""Replies read by transformers' parser: when it is preferred, and that nothing is lost with it."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from cachefriendly import ChatRequest, Engine
from cachefriendly.errors import SchemaError
from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.testing import byte_tokenizer, scripted_replies, tiny_model
from cachefriendly.tools.dialect import dialect_for
from cachefriendly.tools.dialects.gemma4 import GemmaDialect
from cachefriendly.tools.dialects.hermes import HermesDialect
from cachefriendly.tools.dialects.kimi import KimiDialect
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.response_choice import dialect_of, preferred, verdict
from cachefriendly.tools.response_dialect import ResponseTemplateDialect
from cachefriendly.tools.response_template import ResponseTemplate
from tests.tools.driver import Case, check, pieces_by_token

pytest.importorskip(
    "transformers.utils.chat_parsing", reason="this transformers knows no response templates"
)

CALL_OF_JSON = {"type": "function", "function": "{content}"}
NAMED_CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THINK = {"open": "<think>", "close": "</think>"}
HERMES = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": THINK,
        "tool_calls": {
            "open": "<tool_call>", "close": "</tool_call>",
            "repeats": True, "content": "json", "transform": CALL_OF_JSON,
        },
        "content": {"close": "<|im_end|>"},
    },
}  # fmt: skip
GEMMA = {
    "start_anchor": "<|turn>model\n",
    "fields": {
        "reasoning_content": {"open": "<|channel>thought", "close": "<channel|>"},
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)", "close": "<tool_call|>",
            "repeats": True, "content": "json", "transform": NAMED_CALL,
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
        },
        "content": {"close": "<turn|>"},
    },
}  # fmt: skip
KIMI = {
    "start_anchor": "<|im_middle|>",
    "fields": {
        "reasoning_content": THINK,
        "tool_calls": {
            "open_pattern": r"<\|tool_call_begin\|>functions\.(?P<name>[^:]+):\d+"
            r"<\|tool_call_argument_begin\|>",
            "close": "<|tool_call_end|>",
            "repeats": True, "content": "json", "transform": NAMED_CALL,
        },
        "content": {},
    },
}  # fmt: skip
# A form that no dialect of ours knows.
NOVEL = {
    "start_anchor": "<bot>",
    "fields": {
        "thinking": {"open": "<musing>", "close": "</musing>"},
        "tool_calls": {
            "open_pattern": r"\[\[call (?P<name>\w+)\]\]", "close": "[[/call]]",
            "repeats": True, "content": "json", "transform": NAMED_CALL,
        },
        "content": {"close": "<end>"},
    },
}  # fmt: skip
NOVEL_CHAT = "{% for m in messages %}<bot>[[call x]]{% endfor %}"
CHATS = {"hermes": "tools <tool_call>", "gemma4": "<|tool_call>call:"}
CHATS["kimi"] = "<|tool_calls_section_begin|>"

# On every known form ours reads more: a marker inside a string ends their region, and what it has
# behind the region is content.
WINNERS: dict[str, tuple[NativeDialect, dict[str, Any], str | None]] = {
    "hermes": (HermesDialect(), HERMES, "a marker in a string"),
    "gemma4": (GemmaDialect(), GEMMA, "a marker in a string"),
    "kimi": (KimiDialect(), KIMI, "one call"),
}


@pytest.mark.parametrize("name", WINNERS)
def test_a_known_form_is_read_by_whoever_reads_more(name: str) -> None:
    ours, source, first_difference = WINNERS[name]
    theirs = ResponseTemplateDialect(
        reasoning=ours.reasoning, base=ours, template=ResponseTemplate(source), known=True
    )
    assert verdict(theirs, ours) == first_difference
    assert preferred(source, ours, CHATS[name]) is ours
    assert verdict(ours, ours) is None


def test_an_unknown_form_is_read_by_the_response_template() -> None:
    tokenizer = byte_tokenizer(NOVEL_CHAT)
    assert dialect_of(tokenizer, NOVEL_CHAT) == dialect_for(NOVEL_CHAT)
    tokenizer.response_template = NOVEL
    dialect = dialect_of(tokenizer, NOVEL_CHAT)
    assert isinstance(dialect, ResponseTemplateDialect)
    assert {"<musing>", "</musing>", "[[/call]]"} <= set(dialect.markers)
    assert dialect.opens_reasoning("<bot><musing>\n")
    with pytest.raises(SchemaError, match="cannot be forced"):
        dialect.call_grammar([Tool("add", "", {})])


TOOLS = (
    Tool("add", "", {"type": "object", "properties": {"a": {"type": "integer"}}}),
    Tool("find", "", {"type": "object", "properties": {"q": {"type": "string"}}}),
)
CALL, ADD = '[[call add]]{"a": 1}[[/call]]', ("add", {"a": 1})
CASES = {
    "text only": Case("1 [ 2 [[ca\n", "1 [ 2 [[ca\n"),
    "one call": Case(CALL, calls=(ADD,)),
    "text before and after": Case(f"See.\n{CALL}\nSo.", "See.\nSo.", (ADD,)),
    "reasoning, text, call": Case(
        f"<musing>\nHm. 2?\n</musing>\n\nSee.\n{CALL}", "See.", (ADD,), reasoning="Hm. 2?"
    ),
    "reasoning opened": Case(f"Hm.\n</musing>\n{CALL}", "", (ADD,), (), "Hm.", opened=True),
    "two in a row": Case(f"{CALL}\n{CALL}", calls=(ADD, ADD)),
    "nested": Case(
        '[[call find]]{"q": {"a": [[], {"b": null}]}}[[/call]]',
        calls=(("find", {"q": {"a": [[], {"b": None}]}}),),
    ),
    "unicode": Case(
        '[[call find]]{"q": "你好 \\u00e9 🎉"}[[/call]]', calls=(("find", {"q": "你好 é 🎉"}),)
    ),
    "a type by the schema": Case('[[call add]]{"a": "1"}[[/call]]', calls=(ADD,)),
    "malformed": Case(f"[[call add]]{{a: 1}}[[/call]]\n{CALL}", "", (ADD,), ("malformed call",)),
    "arguments are no object": Case("[[call add]][1][[/call]]", "", (), ("must be a JSON object",)),
    "cut off": Case('So: [[call add]]{"a', "So:", (), ("malformed call",)),
}


@pytest.mark.parametrize("case", CASES)
def test_replies_of_an_unknown_form_are_read_in_every_split(case: str, demo_tokenizer: Any) -> None:
    dialect = preferred(NOVEL, HermesDialect(), NOVEL_CHAT)

    def by_token(text: str, markers: Any) -> list[str]:
        return pieces_by_token(demo_tokenizer, text, markers)

    check(dialect, TOOLS, CASES[case], by_token, header=None)


def test_what_transformers_cannot_use_leaves_our_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = HermesDialect()
    assert preferred({"fields": {}}, ours, NOVEL_CHAT) is ours
    assert preferred({**NOVEL, "fields": {"content": {}}}, ours, NOVEL_CHAT) is ours
    odd = {**NOVEL, "fields": {**NOVEL["fields"], "mood": {"open": "<mood>", "close": "</mood>"}}}
    assert preferred(odd, ours, NOVEL_CHAT) is ours

    def too_old(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", too_old)
    assert preferred(NOVEL, ours, NOVEL_CHAT) is ours


def test_calls_are_written_as_the_dialect_behind_it_writes_them() -> None:
    dialect = preferred(NOVEL, HermesDialect(), NOVEL_CHAT)
    call = ToolCall("add", {"a": 1}, id="x")
    assert dialect.render_calls([call]) == HermesDialect().render_calls([call])
    assert dialect.call_id(call, 0) == "x"


def test_the_engine_reads_an_unknown_form_by_the_tokenizers_response_template() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.response_template = NOVEL
    with Engine(tiny_model("llama"), tokenizer) as engine:
        reply = [*engine.token_ids(f"<musing>Hm.</musing>See.\n{CALL}"), tokenizer.eos_token_id]
        with scripted_replies(reply):
            request = ChatRequest((Message("user", "Add."),), tools=TOOLS)
            message = engine.chat(request).result().message
    assert (message.reasoning, message.content) == ("Hm.", "See.")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [ADD]
