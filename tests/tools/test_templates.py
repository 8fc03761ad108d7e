"""The public chat templates: the call that a template prints is read back by its dialect."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cachefriendly.errors import TemplateError
from cachefriendly.messages import Tool
from cachefriendly.openai_forms import tool_to_openai
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.tools.dialect import dialect_for

FOLDER = Path(__file__).parents[2] / ".templates"
NAMES = sorted(path.stem for path in FOLDER.glob("*.jinja"))

PRINTS_NO_CALL = "the template prints no calls; a call is made text of the turn before it"
REFUSES = "the template cannot be rendered with a call as it is: "
FOREIGN = "the form is the model's own and no dialect reads it yet"
REASONS = {
    "HuggingFaceTB-SmolLM3-3B": PRINTS_NO_CALL,
    "LFM2-8B-A1B": PRINTS_NO_CALL,
    "LFM2.5-Instruct": PRINTS_NO_CALL,
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": PRINTS_NO_CALL,
    "google-gemma-2-2b-it": PRINTS_NO_CALL,
    "ibm-granite-granite-3.3-2B-Instruct": PRINTS_NO_CALL,
    "llama-cpp-rwkv-world": PRINTS_NO_CALL,
    "microsoft-Phi-3.5-mini-instruct": PRINTS_NO_CALL,
    "Kimi-K2-Instruct": REFUSES + "it appends to a list, which the sandbox forbids",
    "Kimi-K2-Thinking": REFUSES + "it appends to a list, which the sandbox forbids",
    "llama-cpp-deepseek-r1": REFUSES + "it makes JSON of a generator",
    "Kimi-K3": FOREIGN,
    "MiniMax-M3": FOREIGN,
    "muse-glimmer": FOREIGN,
}
# Printed between quotes without escapes, so a quote or a line break ends the text.
UNESCAPED = {"LFM2.5-8B-A1B"}

WEATHER = Tool(
    "get_weather",
    "Weather.",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "days": {"type": "integer", "description": "How long."},
            "flag": {"type": "boolean", "description": "Whether."},
            "opts": {"type": "object", "description": "How.", "additionalProperties": {}},
            "zip": {"type": "string", "description": "Code."},
            "x": {"type": "number", "description": "Degrees."},
            "list": {"type": "array", "description": "More.", "items": {"type": "string"}},
        },
        "required": ["city"],
    },
)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "all types": {"city": "Zürich 漢字 🎉", "days": 3, "flag": False, "x": 1.5, "list": ["a"]},
    "nested": {"city": "", "opts": {"a": [1, {"b": None}], "c": {"d": "é"}}, "list": []},
    "none": {},
    "text that looks like something else": {"city": "true", "zip": "012", "days": 0},
    "quotes, tags and breaks": {"city": "a < b\n\"q\" \\ 'x' </i>"},
}


def printed_call(source: str, arguments: dict[str, Any], *, as_text: bool) -> str:
    """The assistant's turn behind the prompt, as far as it can be told from what follows it."""
    special = {"bos_token": "<BOS>", "eos_token": "<EOS>"}
    template = ChatTemplate(SimpleNamespace(special_tokens_map=special), source)
    given: Any = json.dumps(arguments, ensure_ascii=False) if as_text else arguments
    call = {"type": "function", "function": {"name": WEATHER.name, "arguments": given}}
    turn = {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", **call}]}
    user = {"role": "user", "content": "USER"}

    def render(*messages: dict[str, Any], prompt: bool = False) -> str:
        return template.render(
            messages,
            tools=[tool_to_openai(WEATHER)],
            arguments={"functions": "[]", "datetime": "now"},
            add_generation_prompt=prompt,
        )

    before, whole = render(user, prompt=True), render(user, turn)
    start = 0
    while start < min(len(before), len(whole)) and before[start] == whole[start]:
        start += 1
    while start < len(before) and not whole[:start].endswith(("\n", ">", "]", ":")):
        start -= 1  # not inside a marker that the prompt and the turn begin alike
    plain = render(user, {"role": "assistant", "content": "ANSWER"})
    return whole[start:].removesuffix(plain.rpartition("ANSWER")[2])


@pytest.mark.skipif(not NAMES, reason="no templates; `make templates` fetches the public ones")
@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REASONS])
def test_a_printed_call_is_read_back(name: str, kind: str) -> None:
    if name in UNESCAPED and kind.startswith("quotes"):
        pytest.skip("the template prints text between quotes without escapes")
    source = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    dialect, arguments = dialect_for(source), ARGUMENTS[kind]
    read = []
    for as_text in (False, True):
        try:
            text = printed_call(source, arguments, as_text=as_text)
        except TemplateError:
            continue
        parser = dialect.parser(id_seed="x", tools=[WEATHER])
        parser.feed(text)
        reply = parser.finish()
        calls = [
            (call.name, json.dumps(call.arguments, sort_keys=True)) for call in reply.tool_calls
        ]
        read.append((calls, reply.invalid_tool_calls, WEATHER.name in reply.content))
    assert ([(WEATHER.name, json.dumps(arguments, sort_keys=True))], (), False) in read


@pytest.mark.skipif(not NAMES, reason="no templates; `make templates` fetches the public ones")
def test_the_reasons_name_templates_that_exist() -> None:
    assert set(REASONS) | UNESCAPED <= set(NAMES)
