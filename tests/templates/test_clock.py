"""Templates that print the date keep their prefix over midnight and over a restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from cachefriendly.prompt import PromptBuilder
from cachefriendly.testing.template_survey import fitting_talk
from cachefriendly.testing.template_talk import run_talk
from tests.templates.conftest import NAMES, exception, source_of, tokenizer_of

EVENING, MORNING = datetime(2026, 3, 1, 23, 59), datetime(2026, 3, 2, 0, 1)
PRINT_TIME = [name for name in NAMES if "strftime_now" in source_of(name)]


class Clock:
    """Strikes midnight after the first look at it."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> datetime:
        self.looks += 1
        return EVENING if self.looks == 1 else MORNING


def talk_over_midnight(name, **options):
    builder = PromptBuilder(tokenizer_of(name), policy="append", now=Clock(), **options)
    # Some print the date only where nobody gave them a system message.
    talk = replace(fitting_talk(builder, exception(name, "arguments")), system=False)
    return talk, run_talk(builder, tokenizer_of(name), talk)


def test_eight_templates_print_the_date():
    if not NAMES:
        pytest.skip("no .templates/: run `make templates`")
    assert len(PRINT_TIME) == 8


def test_prefix_survives_midnight(dated):
    _, steps = talk_over_midnight(dated)
    for step in steps[1:]:
        assert step.kept == len(step.held)


def test_prompt_is_the_same_after_a_restart(dated):
    """The moment comes back from `AgentState.clock`: a new process has no records."""
    talk, steps = talk_over_midnight(dated)
    stored = steps[-1].built.moment.isoformat()
    restarted = PromptBuilder(tokenizer_of(dated), policy="append", now=lambda: MORNING)
    request = talk.request(steps[0].messages, moment=datetime.fromisoformat(stored))
    assert restarted.build(request).ids == steps[0].built.ids
    without = restarted.build(talk.request(steps[0].messages))
    assert without.ids != steps[0].built.ids
