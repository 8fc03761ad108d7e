"""The part of the next prompt that is certain while tools still run."""

from __future__ import annotations

import pytest

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.prompt import PromptBuilder
from cachefriendly.request import ChatRequest
from cachefriendly.testing import byte_tokenizer, templates
from tests.prompt.driver import WEATHER, Conversation

_START = "{{- '<|im_start|>' + message.role + '\\n' -}}"
_CALLS = (
    "{%- for call in message.tool_calls -%}<tool_call>{{ call | tojson }}</tool_call>{%- endfor -%}"
)
_PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"


def looped(result: str, tools: str = "{{- tools | tojson if tools else '' -}}") -> str:
    """A template that knows calls and prints results as ``result`` says."""
    calls = "{%- if message.tool_calls -%}" + _CALLS + "{%- endif -%}"
    other = _START + "{{- message.content -}}" + calls + "{{- '<|im_end|>\\n' -}}"
    body = "{%- if message.role == 'tool' -%}" + result + "{%- else -%}" + other + "{%- endif -%}"
    return tools + "{%- for message in messages -%}" + body + "{%- endfor -%}" + _PROMPT


MERGED = looped(
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}"
    "{{- '<|im_start|>user' -}}{%- endif -%}"
    "{{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' -}}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}"
    "{{- '<|im_end|>\\n' -}}{%- endif -%}"
)
IPYTHON = looped("{{- '<|im_start|>ipython\\n\\n' + (message.content | trim) + '<|im_end|>\\n' -}}")
QUOTED = looped(
    '{{- \'<|im_start|>tool\\n{"name": "\' + message.name + \'", "output": \' -}}'
    "{{- message.content | tojson -}}{{- '}<|im_end|>\\n' -}}"
)
BARE = looped("{{- message.content + '<|im_end|>\\n' -}}")

# What stands between the calls and the text of the first result.
CERTAIN = {
    "role of its own": (templates.NATIVE_TOOLS, "<|im_end|>\n<|im_start|>tool\n<tool_response>\n"),
    "merged": (MERGED, "<|im_end|>\n<|im_start|>user\n<tool_response>\n"),
    "ipython": (IPYTHON, "<|im_end|>\n<|im_start|>ipython\n\n"),
    "quoted": (
        QUOTED,
        '<|im_end|>\n<|im_start|>tool\n{"name": "get_weather", "output": "',
    ),
    "nothing before the text": (BARE, "<|im_end|>\n"),
    "no role for tools": (templates.CHATML, None),
}
RESULTS = (
    "Sun",
    "12",
    "\nSun",
    "  x",
    '{"a": 1}',
    '"',
    "<|im_end|>",
    "[1]",
    "</tool_response>",
    "é",
    "-",
)
CALLS = (
    ToolCall("get_weather", {"city": "Ulm"}, "c1"),
    ToolCall("get_weather", {"city": "Bonn"}, "c2"),
)


def calling(tokenizer, calls=CALLS):
    """A conversation whose newest reply made calls that are still open."""
    chat = Conversation(PromptBuilder(tokenizer), [WEATHER])
    chat.add("system", "Be brief.")
    chat.add("user", "Weather?")
    raw = "".join(
        f'<tool_call>{{"name":"get_weather","id":"{call.id}"}}</tool_call>' for call in calls
    )
    chat.reply(tokenizer.encode(raw, add_special_tokens=False), Message("assistant", "", calls))
    return chat


def certain(chat, *awaiting):
    request = ChatRequest(tuple(chat.messages), tools=chat.tools)
    return chat.builder.build(request, awaiting=awaiting)


def answered(chat, *texts):
    """The prompt once every call has its result."""
    open_calls = CALLS[len(CALLS) - len(texts) :]
    for call, text in zip(open_calls, texts, strict=True):
        chat.add("tool", text, tool_call_id=call.id, name=call.name)
    built = chat.prompt()
    del chat.messages[-len(texts) :]
    return built


@pytest.mark.parametrize("name", CERTAIN)
def test_every_result_goes_on_from_the_certain_part(name):
    template, header = CERTAIN[name]
    chat = calling(byte_tokenizer(template))
    part = certain(chat, "c1", "c2")
    assert part.ids[: len(chat.held)] == chat.held
    if header is not None:
        assert chat.builder.tokens.decode(part.ids[len(chat.held) :]) == header
        assert part.text.endswith(header)
    for text in RESULTS:
        for other in ("later", text):
            assert answered(chat, text, other).ids[: len(part.ids)] == part.ids


def test_what_is_done_already_is_certain():
    chat = calling(byte_tokenizer(MERGED))
    chat.add("tool", "Sun", tool_call_id="c1", name="get_weather")
    part = certain(chat, "c2")
    behind = chat.builder.tokens.decode(part.ids[len(chat.held) :])
    assert behind == (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\nSun\n</tool_response>\n<tool_response>\n"
    )


@pytest.mark.parametrize("name", [name for name in CERTAIN if name != "no role for tools"])
def test_no_token_that_a_result_could_merge_with(name, tokenizer_with):
    chat = calling(tokenizer_with(CERTAIN[name][0]))
    part = certain(chat, "c1", "c2")
    for text in RESULTS:
        assert answered(chat, text, "later").ids[: len(part.ids)] == part.ids
    # At most the text behind the last control token has to wait.
    header = CERTAIN[name][1]
    last = header.rindex("|>") + 2
    assert len(part.ids) >= len(chat.held) + len(
        chat.builder.tokens.encode(header[:last], at_start=False)
    )


def test_spans_and_losses_are_those_of_the_certain_part():
    chat = calling(byte_tokenizer(MERGED))
    part = certain(chat, "c1", "c2")
    assert [(span.start, span.stop) for span in part.spans][-1][1] == len(part.ids)
    assert part.losses == ()
    assert part.provenance.shared == len(chat.held)
    assert all(length <= len(part.ids) for length in part.snapshots_at)


def test_a_call_nobody_made_cannot_be_awaited():
    chat = calling(byte_tokenizer(MERGED))
    with pytest.raises(RequestError, match="made no call 'c3'; its calls are: 'c1', 'c2'"):
        certain(chat, "c1", "c3")
    chat.messages = [Message("user", "Hello")]
    with pytest.raises(RequestError, match="its calls are: none"):
        certain(chat, "c1")


def test_nothing_is_remembered_of_the_stand_ins():
    chat = calling(byte_tokenizer(MERGED))
    held = len(chat.builder.transcript)
    before = chat.prompt().ids
    certain(chat, "c1", "c2")
    assert len(chat.builder.transcript) == held
    assert chat.prompt().ids == before
