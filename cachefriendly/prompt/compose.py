"""Put recorded replies back into a rendered conversation, as far as the history policy allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachefriendly.config import HistoryPolicy
from cachefriendly.events import MissReason
from cachefriendly.messages import Message
from cachefriendly.prompt.draft import Draft
from cachefriendly.prompt.placement import Placement, find_placement
from cachefriendly.prompt.rendering import Rendering
from cachefriendly.prompt.transcript import Record

__all__ = ["Composition", "Rewrite", "compose"]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A recorded reply whose ids were not used; ``shown`` is what the template prints for it."""

    reason: MissReason
    message_index: int
    record: Record
    shown: str


@dataclass(frozen=True, slots=True)
class Composition:
    """A drafted prompt with its last run tokenized. ``base`` is `Draft.base` before that."""

    draft: Draft
    generation_prompt: str
    base: tuple[int, bytes]
    rewrites: tuple[Rewrite, ...]


def compose(
    rendering: Rendering,
    messages: Sequence[Message],
    known: Mapping[int, Record],
    *,
    policy: HistoryPolicy,
    add_generation_prompt: bool,
    restart: int | None = None,
) -> Composition:
    """Draft the prompt of ``messages`` (disguised, known replies in their recorded form).

    ``restart``: number of the known reply whose whole prompt is kept whatever the template says
    now (policy ``append``).
    """
    text = rendering.render(messages, add_generation_prompt=add_generation_prompt)
    generation_prompt = ""
    if add_generation_prompt:
        generation_prompt = _generation_prompt(rendering, messages, text)
    composer = _Composer(rendering, messages, policy)
    placed, placement = _placed(rendering, text, messages, sorted(known), add_generation_prompt)
    unplaced = [index for index in sorted(known) if index not in placed]
    composer.rewrites += [
        Rewrite(MissReason.TEMPLATE_REWROTE_HISTORY, index, known[index], "") for index in unplaced
    ]
    behind = None
    if restart is not None and restart in unplaced:
        behind = _behind(rendering, messages[: restart + 1], text)
    if restart is not None and behind is not None:
        composer.draft.restart_from(known[restart], restart)
        composer.draft.write(behind)
    else:
        composer.walk(placement, placed, known, restart)
    base = composer.draft.base(generation_prompt)
    composer.draft.tokenize_run()
    return Composition(composer.draft, generation_prompt, base, tuple(composer.rewrites))


def _placed(
    rendering: Rendering,
    text: str,
    messages: Sequence[Message],
    replies: Sequence[int],
    add_generation_prompt: bool,
) -> tuple[Sequence[int], Placement]:
    """The replies that can be found in ``text``: all of them, those without calls, or none."""
    plain = [index for index in replies if not messages[index].tool_calls]
    for chosen in (replies, plain):
        if chosen:
            found = find_placement(
                rendering, text, messages, chosen, add_generation_prompt=add_generation_prompt
            )
            if found is not None:
                return chosen, found
    return (), Placement((text,), (), ())


def _behind(rendering: Rendering, history: Sequence[Message], text: str) -> str | None:
    """What follows the last reply of ``history`` in ``text``, its turn close included."""
    before = rendering.render(history, add_generation_prompt=False)
    close = rendering.prepared.features.close
    if not close or not before.endswith(close) or not text.startswith(before):
        return None
    return close + text[len(before) :]


def _generation_prompt(rendering: Rendering, messages: Sequence[Message], text: str) -> str:
    """The generation prompt; "" where the template changes more than its end for it."""
    history = rendering.render(messages, add_generation_prompt=False)
    return text[len(history) :] if text.startswith(history) else ""


class _Composer:
    def __init__(
        self, rendering: Rendering, messages: Sequence[Message], policy: HistoryPolicy
    ) -> None:
        self.draft = Draft(rendering.prepared.tokens, rendering.disguise)
        self.rewrites: list[Rewrite] = []
        self._rendering = rendering
        self._messages = messages
        self._policy = policy

    def walk(
        self,
        placement: Placement,
        replies: Sequence[int],
        known: Mapping[int, Record],
        restart: int | None,
    ) -> None:
        self.draft.write(placement.between[0])
        parts = zip(replies, placement.blocks, placement.open_start, strict=True)
        for (index, block, open_start), after in zip(parts, placement.between[1:], strict=True):
            record = known[index]
            self._place(index, record, block, open_start)
            if index == restart and self.draft.tip is not record:
                self.draft.restart_from(record, index)
            self.draft.write(after)

    def _place(self, index: int, record: Record, block: str, open_start: bool) -> None:
        """Draft one reply: with its whole prompt, else as a block, else as the rendered text."""
        message = self._messages[index]
        if not open_start and self._policy == "template" and not _shows(block, message):
            self._rewrite(index, record, block)
            return
        header = self.draft.beyond(record)
        if header is not None:
            if self._allows(message, record, header, block):
                self.draft.take_prompt_and_block(record, index)
            else:
                self._rewrite(index, record, block)
            return
        header = None if open_start else self._header(index, record)
        if header is not None and self._allows(message, record, header, block):
            self.draft.take_block(record, index, header)
        else:
            self._rewrite(index, record, block)

    def _allows(self, message: Message, record: Record, header: str, block: str) -> bool:
        shown = header + block
        if self._policy == "template":
            return _shows(shown, message)
        if self._policy == "exact":
            reveal = self._rendering.disguise.reveal
            return reveal(shown) == record.generation_prompt + record.output_text
        return True

    def _rewrite(self, index: int, record: Record, block: str) -> None:
        reason = MissReason.TEMPLATE_REWROTE_HISTORY
        shown = self._rendering.disguise.reveal(block)
        self.rewrites.append(Rewrite(reason, index, record, shown))
        self.draft.write(block)

    def _header(self, index: int, record: Record) -> str | None:
        """What the run ends with in place of ``record.generation_prompt``; None when not known.

        First what probing found behind a message of that role, else the longest end of the run
        that the generation prompt starts with.
        """
        run, generation_prompt = self.draft.run, record.generation_prompt
        before = self._messages[index - 1].role if index else ""
        features = self._rendering.prepared.features
        role = before if features.calls or before != "tool" else "user"
        probed = features.headers.get(role, "")
        if probed and run.endswith(probed):
            return probed
        for size in range(min(len(run), len(generation_prompt)), 0, -1):
            if run.endswith(generation_prompt[:size]):
                return generation_prompt[:size]
        return None if generation_prompt else ""


def _shows(shown: str, message: Message) -> bool:
    """Whether the rendered reply still says what was generated; spelling does not count."""
    parts = [message.content, message.reasoning or ""]
    parts += [call.name for call in message.tool_calls]
    parts += [call.raw for call in message.invalid_tool_calls]
    return all(part.strip() in shown for part in parts)
