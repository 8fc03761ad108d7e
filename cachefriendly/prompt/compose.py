"""Put recorded replies back into a rendered conversation, as far as the history policy allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cachefriendly.events import MissReason
from cachefriendly.messages import Message
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.draft import Draft
from cachefriendly.prompt.placement import Placement, find_placement
from cachefriendly.prompt.policy import Policy, PrintedReply
from cachefriendly.prompt.record import PromptBase, Record
from cachefriendly.prompt.rendering import Rendering

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
    """A drafted prompt, all of it tokenized; ``base`` is that of its record (see `Record`)."""

    draft: Draft
    generation_prompt: str
    base: PromptBase
    rewrites: tuple[Rewrite, ...]


def compose(
    rendering: Rendering,
    messages: Sequence[Message],
    known: Mapping[int, Record],
    *,
    policy: Policy,
    add_generation_prompt: bool,
    restart: int | None = None,
) -> Composition:
    """Draft the prompt of ``messages`` (disguised, known replies in their recorded form).

    ``restart``: number of the known reply whose whole prompt is kept whatever the template says
    now.
    """
    text = rendering.render(messages, add_generation_prompt=add_generation_prompt)
    rendering.check(text, messages, add_generation_prompt=add_generation_prompt)
    generation_prompt = ""
    if add_generation_prompt:
        generation_prompt = _generation_prompt(rendering, messages, text)
    composer = _Composer(rendering, messages, known, policy)
    composer.walk(composer.placement(text, add_generation_prompt), restart, text)
    base = composer.draft.base(generation_prompt)
    composer.draft.tokenize_run()
    return Composition(composer.draft, generation_prompt, base, tuple(composer.rewrites))


def _generation_prompt(rendering: Rendering, messages: Sequence[Message], text: str) -> str:
    """The end of ``text``; "" where the template changes more than its end for it.

    Also "" with something in disguise: a record outlives the placeholders of its request.
    """
    history = rendering.render(messages, add_generation_prompt=False)
    end = text[len(history) :] if text.startswith(history) else ""
    return "" if rendering.disguise.touches(end) else end


class _Composer:
    """Goes through one rendered conversation, reply by reply."""

    def __init__(
        self,
        rendering: Rendering,
        messages: Sequence[Message],
        known: Mapping[int, Record],
        policy: Policy,
    ) -> None:
        self.draft = Draft(rendering.prepared.tokens, rendering.disguise)
        self.rewrites: list[Rewrite] = []
        self._rendering = rendering
        self._messages = messages
        self._known = known
        self._policy = policy

    def placement(self, text: str, add_generation_prompt: bool) -> Placement:
        """The replies that can be found in ``text``: all of them, those without calls, or none."""
        replies = sorted(self._known)
        plain = [index for index in replies if not self._messages[index].tool_calls]
        for chosen in (replies, plain):
            if not chosen:
                continue
            found = find_placement(
                self._rendering,
                text,
                self._messages,
                chosen,
                add_generation_prompt=add_generation_prompt,
            )
            if found is not None:
                return found
        return Placement((), (text,), (), ())

    def walk(self, placement: Placement, restart: int | None, text: str) -> None:
        """Draft everything; ``restart`` as in `compose`."""
        for index in sorted(set(self._known).difference(placement.replies)):
            self._rewrite(index, "")
        behind = None
        if restart is not None and restart not in placement.replies:
            behind = self._behind(restart, text)
        if restart is not None and behind is not None:
            self.draft.restart_from(self._known[restart], restart)
            self.draft.write(self._new(restart, behind))
            return
        self.draft.write(placement.between[0])
        for number, index in enumerate(placement.replies):
            block, behind = placement.blocks[number], placement.between[number + 1]
            kept = self._place(index, block, behind, placement.open_start[number])
            if index == restart and self.draft.tip is not self._known[index]:
                self.draft.restart_from(self._known[index], index)
                kept = True
            self.draft.write(self._new(index, behind) if kept else behind)

    def _behind(self, index: int, text: str) -> str | None:
        """What follows reply ``index`` in ``text``, its turn close included."""
        history = self._messages[: index + 1]
        before = self._rendering.render(history, add_generation_prompt=False)
        controls = self._rendering.prepared.controls
        close = controls.ending(before[: controls.floor(before, common_prefix(before, text))])
        if not close or not before.endswith(close) or not text.startswith(before):
            return None
        return close + text[len(before) :]

    def _new(self, index: int, behind: str) -> str:
        """What of ``behind`` a recorded reply has not written itself.

        A turn may close with several control tokens, of which the model writes all but the last.
        """
        controls, record = self._rendering.prepared.controls, self._known[index]
        start = controls.said_again(record.output, record.output_text, behind)
        features = self._rendering.prepared.features
        whole, close = features.call_close, features.close
        if self._messages[index].tool_calls and close and whole.endswith(close):
            # The close of a call is the model's own, however it spells it.
            start = max(start, len(whole) - len(close)) if behind.startswith(whole) else start
        return behind[start:]

    def _place(self, index: int, block: str, behind: str, open_start: bool) -> bool:
        """Draft one reply: with its whole prompt, else as a block, else as the rendered text.

        False: as the rendered text.
        """
        message, record = self._messages[index], self._known[index]
        # With another number of messages before it, whole messages may lie beyond the prompt.
        beyond = self.draft.beyond(record) if index == record.asked_messages else None
        header = beyond
        if beyond is None and not open_start:
            header = self._header(index, record)
        said = block + behind.removesuffix(self._new(index, behind))
        if header is None or not self._policy.keeps(
            PrintedReply(message, record, header, said, open_start, self._rendering.disguise)
        ):
            self._rewrite(index, self._rendering.disguise.reveal(block))
            self.draft.write(block)
            return False
        if beyond is not None:
            self.draft.take_prompt_and_block(record, index)
        else:
            self.draft.take_block(record, index, header)
        return True

    def _rewrite(self, index: int, shown: str) -> None:
        reason = MissReason.TEMPLATE_REWROTE_HISTORY
        self.rewrites.append(Rewrite(reason, index, self._known[index], shown))

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
