"""A workflow of agents goes on in another process with the exact ids of both agents."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from llama_index.core.workflow import Context

from cachefriendly import Engine
from cachefriendly.testing import scripted_replies, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_li import AgentWorkflow, CacheFriendlyLLM
from tests.li.agents import HAND_TEXTS, WORKFLOW_WARNINGS, two_agents
from tests.li.elsewhere import answer_from
from tests.li.talk import Talk, held_by
from tests.li.watch import TOKENIZER, ids_of

pytestmark = WORKFLOW_WARNINGS

TO_CHECK, TO_WRITE = HAND_TEXTS
HALF_A_LETTER = TOKENIZER("é").input_ids[:1]
"""Ids that their text does not give again: it is shown as a replacement character of three."""

HERE = f"from {__name__} import elsewhere; elsewhere()"


def workflow_on(engine: Engine) -> AgentWorkflow:
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=150, generate_kwargs={"do_sample": False})
    return AgentWorkflow(agents=two_agents(llm), root_agent="write")


async def talk_of(
    engine: Engine, question: str, stored: dict[str, Any] | None = None, *replies: list[int]
) -> tuple[dict[str, Any], Talk]:
    """What a run leaves in its context, and its calls."""
    workflow = workflow_on(engine)
    context = Context(workflow) if stored is None else Context.from_dict(workflow, stored)
    with Talk(engine) as talk, scripted_replies(*replies):
        await workflow.run(question, ctx=context)
    return context.to_dict(), talk


def elsewhere() -> None:
    """Run by the other process: the run before comes in as JSON, prompts go out so."""
    with Engine(tiny_model("llama"), TOKENIZER) as engine:
        stored = json.load(sys.stdin)
        run = talk_of(engine, "Again.", stored, TO_CHECK, ids_of("Checked twice."))
        _, talk = asyncio.run(run)
        json.dump([result.prompt_ids for result in talk.results], sys.stdout)


@pytest.mark.long
async def test_both_agents_go_on_with_their_exact_ids(tiny_engine: Engine) -> None:
    checked = [*HALF_A_LETTER, *TO_WRITE]
    written = [*ids_of("Written")[:-1], *HALF_A_LETTER, END_ID]
    stored, talk = await talk_of(tiny_engine, "Go.", None, TO_CHECK, checked, written)
    _, by_check, by_write = talk.results

    write_again, check_again = answer_from(HERE, stored)
    for before, again in ((by_write, write_again), (by_check, check_again)):
        known = held_by(before)
        assert set(HALF_A_LETTER) <= set(before.output_ids)
        assert tuple(again[: len(known)]) == known
