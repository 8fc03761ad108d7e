"""Calls of an engine whose ids are bytes: what each was asked and what it forwarded, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from cachefriendly import ChatResult, Engine
from tests.li.watch import TOKENIZER

__all__ = ["Talk", "turn_of"]


class Talk:
    """The calls that an engine starts while this is open.

    Texts come out of the ids that were sent, so that a fault of the prompt builder, which a warm
    and a cold run share, shows as well.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine: Any = engine
        self._calls: list[Any] = []

    def __enter__(self) -> Self:
        chat = self._engine.chat

        def started(*args: Any, **kwargs: Any) -> Any:
            self._calls.append(chat(*args, **kwargs))
            return self._calls[-1]

        self._engine.chat = started
        return self

    def __exit__(self, *exception: object) -> None:
        del self._engine.chat

    @property
    def results(self) -> list[ChatResult]:
        """Of the calls that finished, in the order in which they began."""
        return [result for call in self._calls if (result := call._reply.result) is not None]

    def prompt(self, number: int) -> str:
        return str(TOKENIZER.decode(self.results[number].prompt_ids))

    def new_text(self, number: int, behind: int | None = None) -> str:
        """What a call forwarded: nothing that the one ``behind`` which it stands held, and all
        that came after."""
        call = self.results[number]
        held = held_by(self.results[number - 1 if behind is None else behind])
        assert call.prompt_ids[: len(held)] == held
        assert call.report.losses == ()
        assert call.report.reused_tokens + call.report.prefilled_tokens == len(call.prompt_ids)
        assert call.report.reused_tokens == len(held)
        return str(TOKENIZER.decode(call.prompt_ids[len(held) :]))


def held_by(result: ChatResult) -> tuple[int, ...]:
    """The ids whose keys a finished call leaves: the one that was sampled last has none."""
    return (*result.prompt_ids, *result.output_ids)[
        : result.report.prompt_tokens + result.report.generated_tokens - 1
    ]


def turn_of(text: str, role: str = "user") -> str:
    """What a further message adds to a conversation whose last reply ended by itself."""
    return f"<|im_end|>\n<|im_start|>{role}\n{text}<|im_end|>\n<|im_start|>assistant\n"


def rendered(messages: Sequence[tuple[str, str]], tokenizer: Any = TOKENIZER) -> str:
    """A conversation of (role, text) as transformers renders it for the next reply."""
    plain = [{"role": role, "content": text} for role, text in messages]
    return str(tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True))
