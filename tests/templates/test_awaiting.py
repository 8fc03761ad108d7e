"""Every public template: what is certain while a tool runs is what the next prompt begins with."""

from __future__ import annotations

from dataclasses import replace

from cachefriendly.prompt import PromptBuilder
from cachefriendly.testing.template_survey import fitting_talk
from cachefriendly.testing.template_talk import MOMENT, Renderer, spelled_ids
from tests.templates.conftest import exception, tokenizer_of

RESULTS = ("sun, 12 degrees", "\n\nsun", '{"sky": "blue"}', "12", "<tool_call>")


def test_the_next_prompt_begins_with_the_certain_part(name):
    tokenizer = tokenizer_of(name)
    builder = PromptBuilder(tokenizer, now=lambda: MOMENT)
    talk = fitting_talk(builder, exception(name, "arguments"))
    (new, reply), ((result,), _), *_ = talk.turns()
    render = Renderer(builder.prepared(with_tools=talk.tools), talk)
    built = builder.build(talk.request(new))
    ids = spelled_ids(tokenizer, render.reply(new, reply))
    builder.commit(built, ids, reply)
    awaiting = [call.id for call in reply.tool_calls]
    part = builder.build(talk.request([*new, reply]), awaiting=awaiting)
    for text in RESULTS:
        sent = [*new, reply, replace(result, content=text)]
        assert builder.build(talk.request(sent)).ids[: len(part.ids)] == part.ids
    plain = builder.build(talk.request([*new, reply, result])).text
    assert plain.startswith(part.text)
    assert plain[len(part.text) :].startswith(result.content[0])
