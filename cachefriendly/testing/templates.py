"""Chat templates with one known trap each, all on ChatML, written for this project.

Named constants, used like ``byte_tokenizer(templates.EMPTY_THINK_IN_PROMPT)``. Messages have the
form transformers passes to templates: ``content``, ``tool_calls`` with ``function.arguments`` as a
mapping, ``reasoning_content``.
"""

from __future__ import annotations

__all__ = [
    "ALL",
    "CHATML",
    "CHATML_NO_DEFAULT_SYSTEM",
    "DATE_NEAR_START",
    "EMPTY_THINK_IN_PROMPT",
    "LAST_MESSAGE_DIFFERS",
    "NATIVE_TOOLS",
    "NEWLINE_BEFORE_CALL",
    "PROMPT_BY_LAST_ROLE",
    "PYTHON_BOOLEANS",
    "REASONING_DROPPED",
]

_OPEN = "{{- '<|im_start|>' + message.role + '\\n' -}}"
_CLOSE = "{{- '<|im_end|>\\n' -}}"
_PROMPT = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
_TEXT = "{{- message.content -}}"

# The model's own text between the markers; each template decides what stands before the marker.
_CALL = (
    '{{- \'<tool_call>\\n{"name": "\' + call.function.name + \'", "arguments": \' -}}'
    "{{- call.function.arguments | tojson -}}{{- '}\\n</tool_call>' -}}"
)
_RESULT = "{{- '<tool_response>\\n' + message.content + '\\n</tool_response>' -}}"


def _loop(body: str, *, opening: str = "", prompt: str = _PROMPT) -> str:
    """A template that prints every message in turn, then the generation prompt."""
    turns = "{%- for message in messages -%}" + _OPEN + body + _CLOSE + "{%- endfor -%}"
    return opening + turns + prompt


def _calls(before: str) -> str:
    """The calls of an assistant message, each behind ``before``."""
    loop = "{%- for call in message.tool_calls or [] -%}" + before + _CALL + "{%- endfor -%}"
    return "{%- if message.tool_calls -%}" + loop + "{%- endif -%}"


CHATML_NO_DEFAULT_SYSTEM = _loop(_TEXT)
"""Plain: role, newline, content, end of turn; knows neither tools nor reasoning."""

CHATML = _loop(
    _TEXT,
    opening=(
        "{%- if messages[0].role != 'system' -%}"
        "{{- '<|im_start|>system\\nYou are a helpful assistant<|im_end|>\\n' -}}{%- endif -%}"
    ),
)
"""Plain, but a conversation without a system message gets one that nobody wrote."""

EMPTY_THINK_IN_PROMPT = _loop(
    _TEXT,
    prompt=(
        "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}"
        "{%- if enable_thinking is defined and not enable_thinking -%}"
        "{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}{%- endif -%}"
    ),
)
"""With ``enable_thinking=False`` the generation prompt holds an empty think block that the same
turn does not show once it is history: the ids behind the header differ by the block."""

REASONING_DROPPED = _loop(
    "{%- if message.role == 'assistant' and message.reasoning_content"
    " and loop.index0 > last.user -%}"
    "{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' -}}{%- endif -%}" + _TEXT,
    opening=(
        "{%- set last = namespace(user=-1) -%}{%- for message in messages -%}"
        "{%- if message.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}"
        "{%- endfor -%}"
    ),
)
"""Reasoning is printed only behind the newest user message: the next question rewrites history."""

NATIVE_TOOLS = _loop(
    "{%- if message.role == 'tool' -%}"
    + _RESULT
    + "{%- else -%}"
    + _TEXT
    + "{%- if block and loop.first and message.role == 'system' -%}"
    + "{{- '\\n\\n' + block -}}{%- endif -%}"
    + _calls("{%- if message.content or not loop.first -%}{{- '\\n' -}}{%- endif -%}")
    + "{%- endif -%}",
    opening=(
        "{%- set lines = (tools or []) | map('tojson') | join('\\n') -%}"
        "{%- set block = '# Tools\\n<tools>\\n' + lines + '\\n</tools>' if tools else '' -%}"
        "{%- if block and messages[0].role != 'system' -%}"
        "{{- '<|im_start|>system\\n' + block + '<|im_end|>\\n' -}}{%- endif -%}"
    ),
)
"""Knows tools: ``tools`` are stated in the system block, results come back in role tool."""

NEWLINE_BEFORE_CALL = _loop(
    "{%- if message.role == 'tool' -%}"
    + _RESULT
    + "{%- else -%}"
    + _TEXT
    + _calls("{{- '\\n' -}}")
    + "{%- endif -%}"
)
"""A newline before every ``<tool_call>``, even the first of an empty message: a model that starts
its reply with the marker did not write it."""

PROMPT_BY_LAST_ROLE = _loop(
    _TEXT,
    prompt=(
        "{%- if add_generation_prompt -%}{%- if messages[-1].role == 'tool' -%}"
        "{{- '<|im_start|>assistant\\nBased on the result: ' -}}{%- else -%}"
        "{{- '<|im_start|>assistant\\n' -}}{%- endif -%}{%- endif -%}"
    ),
)
"""The generation prompt behind a tool result carries words that history does not repeat."""

PYTHON_BOOLEANS = _loop(
    "{%- if message.role == 'tool' -%}"
    + _RESULT
    + "{%- else -%}"
    + _TEXT
    + _calls("{%- if not loop.first -%}{{- '\\n' -}}{%- endif -%}").replace(
        "call.function.arguments | tojson", "call.function.arguments | string"
    )
    + "{%- endif -%}"
)
"""Arguments printed as Python values (``False``, single quotes) where the model wrote JSON."""

DATE_NEAR_START = _loop(
    _TEXT,
    opening=(
        "{{- '<|im_start|>system\\nToday is ' + strftime_now('%Y-%m-%d %H:%M:%S')"
        " + '<|im_end|>\\n' -}}"
    ),
)
"""The time of rendering stands before everything else: a live clock loses the whole prefix."""

LAST_MESSAGE_DIFFERS = _loop(
    "{%- if message.role == 'user' and loop.last -%}{{- '[now] ' + message.content -}}"
    "{%- else -%}" + _TEXT + "{%- endif -%}"
)
"""The newest user message is marked, and no longer so when another message follows it."""

ALL: dict[str, str] = {
    name: value for name, value in list(globals().items()) if name in __all__ and name != "ALL"
}
"""Every template by name, for tests that run over all of them."""
