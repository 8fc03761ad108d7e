"""No control token of any public template arises from untrusted text, wherever it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cachefriendly.errors import ControlTokenError
from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.prompt import PromptBuilder
from cachefriendly.request import ChatRequest
from tests.templates.conftest import NAMES, exception, tokenizer_of

PLAIN = "plain"


def requests(text: str, *, system: bool, arguments: dict) -> Iterator[tuple[str, ChatRequest]]:
    """``text`` at every place where untrusted text can stand, one place after the other."""
    schema = {"type": "object", "properties": {"key": {"type": "string", "description": "d"}}}
    tool, keyed = Tool("look", "Look it up", schema), Tool("look", "Look it up", {
        "type": "object", "properties": {f"k{text}": {"type": "string", "description": "d"}},
    })  # fmt: skip
    call = ToolCall("look", {"key": "value"}, "callabc01")
    messages = (
        *([Message("system", "Be kind.")] if system else []),
        Message("user", "Look."),
        Message("assistant", "", tool_calls=(call,)),
        Message("tool", "found", tool_call_id="callabc01", name="look"),
    )
    base = ChatRequest(messages, tools=(tool,), template_arguments=arguments)

    def saying(role: str, **changes: object) -> ChatRequest:
        changed = (replace(m, **changes) if m.role == role else m for m in messages)
        return replace(base, messages=tuple(changed))

    if system:
        yield "system", saying("system", content=f"a {text} b")
    yield "user", saying("user", content=f"{text}{text} and {text}\n{text}")
    yield "result", saying("tool", content=f"{text}\n{text}")
    yield "user name", saying("user", name=f"n{text}")
    yield "call name", saying("assistant", tool_calls=(replace(call, name=f"look{text}"),))
    yield "argument", saying("assistant", tool_calls=(replace(call, arguments={"key": text}),))
    keys = {f"k{text}": {text: [text]}}
    yield "argument key", saying("assistant", tool_calls=(replace(call, arguments=keys),))
    yield "tool name", replace(base, tools=(replace(tool, name=f"look{text}"),))
    yield "description", replace(base, tools=(replace(tool, description=text),))
    yield "tool key", replace(base, tools=(keyed,))


def structure(builder: PromptBuilder, request: ChatRequest) -> Counter[int]:
    controls = builder.prepared(with_tools=True).controls
    return Counter(i for i in builder.build(request).ids if i in controls.ids)


def structure_or_refusal(builder: PromptBuilder, request: ChatRequest) -> Counter[int] | str:
    try:
        return structure(builder, request)
    except ControlTokenError as error:
        return str(error)


def sweep(name: str, tokens: list[str] | None = None) -> Counter[str]:
    """Places at which a token was refused; fails where one arose."""
    builder = PromptBuilder(tokenizer_of(name))
    prepared = builder.prepared(with_tools=True)
    options = {"system": prepared.features.system, "arguments": exception(name, "arguments") or {}}
    clean = {place: structure(builder, r) for place, r in requests(PLAIN, **options)}
    refused: Counter[str] = Counter()
    for token in tokens or list(prepared.controls.by_text):
        for place, request in requests(token, **options):
            found = structure_or_refusal(builder, request)
            if isinstance(found, str):
                assert token in found
                refused[place] += 1
            else:
                assert found == clean[place], (token, place)
    return refused


def first_and_last(name: str) -> list[str]:
    """One token that is flagged special and one that is not, where there are both."""
    tokens = PromptBuilder(tokenizer_of(name)).prepared(with_tools=True).controls.by_text
    return list({min(tokens): None, max(tokens): None})


def test_first_and_last_control_token(name):
    sweep(name, first_and_last(name))


@pytest.mark.long
def test_every_control_token(name):
    refused = sweep(name)
    assert set(refused) == set(exception(name, "refused") or {})


def test_control_tokens_are_known():
    if not NAMES:
        pytest.skip("no .templates/: run `make templates`")
    sizes = [
        len(PromptBuilder(tokenizer_of(n)).prepared(with_tools=True).controls.tokens) for n in NAMES
    ]
    assert min(sizes) >= 2
