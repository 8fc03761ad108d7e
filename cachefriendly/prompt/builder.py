"""Messages to token ids, with everything a model generated kept as it was generated."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, time
from functools import partial
from typing import Any

from cachefriendly.config import Clock, HistoryPolicy
from cachefriendly.events import Loss
from cachefriendly.messages import Message, check_conversation
from cachefriendly.prompt.awaiting import (
    STAND_INS,
    certain_part,
    possible_orders,
    with_results,
)
from cachefriendly.prompt.bindings import Binder, Bound, BoundTalk
from cachefriendly.prompt.boundaries import likely_partings
from cachefriendly.prompt.built import BuiltPrompt, Circumstances, Provenance
from cachefriendly.prompt.chain import Link
from cachefriendly.prompt.committed import record_of
from cachefriendly.prompt.compose import Composition, compose
from cachefriendly.prompt.decode import StreamDecoder
from cachefriendly.prompt.departure import find_departure
from cachefriendly.prompt.digests import digest_of
from cachefriendly.prompt.fingerprint import fingerprint_of
from cachefriendly.prompt.head import PrefixLengths
from cachefriendly.prompt.inputs import InputDigests
from cachefriendly.prompt.late_tools import parted
from cachefriendly.prompt.lengths import MessageLengths
from cachefriendly.prompt.losses import Comparison, compare_nearest, find_losses
from cachefriendly.prompt.overflow import ContextWindow, Cut, CutMoved
from cachefriendly.prompt.policy import policy_named
from cachefriendly.prompt.record import Record
from cachefriendly.prompt.rendering import PreparedTemplate, Rendering
from cachefriendly.prompt.restore import restored
from cachefriendly.prompt.template import check_arguments
from cachefriendly.prompt.templates import Templates
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.prompt.transcript import Recognition, Transcript
from cachefriendly.prompt.turns import Turns
from cachefriendly.request import ChatRequest
from cachefriendly.tools.dialect import Dialect

__all__ = ["BuiltPrompt", "PromptBuilder"]


class PromptBuilder:
    """Builds prompts and records what came of them. Thread safe.

    Attributes:
        turns: what it recorded, as text for other processes.

    Raises at construction:
        TemplateError: the tokenizer has no chat template, or one that does not compile.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        policy: HistoryPolicy = "template",
        clock: Clock = "session",
        model_fingerprint: str = "",
        transcript: Transcript | None = None,
        now: Callable[[], datetime] = datetime.now,
        window: ContextWindow | None = None,
    ) -> None:
        self.transcript = Transcript() if transcript is None else transcript
        self._policy = policy_named(policy)
        self._clock = clock
        self._now = now
        self._templates = Templates(tokenizer, self._policy)
        self._identity = digest_of(model_fingerprint.encode(), self.tokens.digest)
        identity = digest_of(self._identity, *self._templates.sources).hex()[:16]
        self.turns = Turns(self.transcript, self.tokens, identity)
        self._binder = Binder(self.transcript)
        self._prefixes = PrefixLengths()
        self._window = window
        self._lengths = MessageLengths(self.tokens.count, self._templates.plain_length)

    @property
    def dialect(self) -> Dialect:
        """The tool dialect of the template that is used when tools are given."""
        return self._templates.with_tools.dialect

    def prepared(self, *, with_tools: bool) -> PreparedTemplate:
        """The template that is used with tools, or without; the same one for most tokenizers."""
        return self._templates.with_tools if with_tools else self._templates.plain

    @property
    def tokens(self) -> TextTokenizer:
        """Text to ids and back on frozen clones."""
        return self._templates.plain.tokens

    def decoder(self) -> StreamDecoder:
        """A decoder for one reply."""
        return StreamDecoder(self.tokens)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text as the start of a prompt; control tokens in it are structure."""
        return self.tokens.encode(text)

    def forget(self, namespace: str) -> None:
        """Drop every record of a namespace."""
        self.transcript.forget(namespace)
        self._binder.forget(namespace)

    def build(
        self,
        request: ChatRequest,
        *,
        generation_prompt: bool = True,
        whole: bool = False,
        awaiting: Collection[str] = (),
    ) -> BuiltPrompt:
        """The prompt of a request. ``generation_prompt=False``: the history only.

        ``awaiting``: ids of calls of the last assistant message that have no result yet, in the
        order in which results will stand, or as a set where nobody knows that order yet. The
        prompt then goes on behind the history up to where the text of the first result will
        begin: as far as no result can change a token.

        With a `ContextWindow` a history that does not fit is cut, unless it is wanted ``whole``.
        Tools are taken as they are; `cachefriendly.tools.schema.check_tools` refuses bad ones.

        Raises:
            RequestError: messages or template arguments cannot be meant.
            ContextOverflow: with a `ContextWindow`: the newest turn does not fit by itself.
            TemplateError: the template refuses the messages.
            ControlTokenError: a control token in untrusted text cannot be neutralised.
        """
        check_conversation(request.messages)
        check_arguments(request.template_arguments)
        if awaiting:
            return self._build_awaiting(request, awaiting)
        request, announced = parted(request)
        talk = self._binder.bind(request, announced)
        build = partial(self._build, request, talk, generation_prompt)
        if self._window is None or whole:
            return build(Cut.nothing(len(talk.links)))
        lengths, head = self._lengths.of(talk.links), self._templates.head_length(request)
        return self._window.fit(request.messages, lengths, head, build)

    def _build_awaiting(self, request: ChatRequest, awaiting: Collection[str]) -> BuiltPrompt:
        one, *others = (
            self.build(replace(request, messages=with_results(request.messages, order, text)))
            for order in possible_orders(awaiting)
            for text in STAND_INS
        )
        for other in others:
            one = certain_part(one, other, self.tokens)
        return one

    def _build(
        self, request: ChatRequest, talk: BoundTalk, generation_prompt: bool, cut: Cut
    ) -> BuiltPrompt:
        """The prompt of the messages that stay. Their links name all that came before them."""
        messages, links, moved = talk.messages, talk.links, None
        found = self.transcript.recognise(request.namespace, links)
        if cut.dropped:
            found = found.among(cut.kept)
            messages = talk.among(cut.kept)
            links = tuple(links[index] for index in cut.kept)
        if self._window is not None:
            moved = CutMoved.of(found, links)
        if self._policy.restores:
            messages = restored(messages, found.known)
        moment = request.moment or self._moment(found)
        rendering = self._templates.rendering(request, messages, moment, cut.kept)
        now = self._circumstances(request, rendering, links, talk.newest)
        disguised = self._templates.disguised(messages, rendering)
        composition = compose(
            rendering,
            disguised,
            found.known,
            policy=self._policy,
            add_generation_prompt=generation_prompt,
            restart=None if moved else self._restart(found, links, now.inputs),
        )
        prefix = self._prefixes.of(rendering, disguised, now.inputs)
        built = self._built(request.namespace, composition, found, now, moved)
        built = replace(built, prefix_tokens=prefix)
        return _numbered(built, cut) if cut.dropped else built

    def commit(self, built: BuiltPrompt, output_ids: Sequence[int], reply: Message) -> str:
        """Record a finished call; returns the handle of the reply.

        ``output_ids`` are without the sampled stop token, ``reply`` is what they were parsed to.
        """
        now = built.provenance.circumstances
        if now.bound is not None:
            self._binder.remember(built.namespace, now.session, now.bound)
        return self.transcript.add(record_of(built, output_ids, reply, self.tokens))

    def _moment(self, found: Recognition) -> datetime:
        """What ``strftime_now`` prints: a conversation keeps the time of its first call."""
        now = self._now()
        if self._clock == "day":
            return datetime.combine(now.date(), time())
        if self._clock == "session" and (found.latest or found.known):
            return (found.latest or next(iter(found.known.values()))).moment
        return now

    def _restart(
        self, found: Recognition, links: Sequence[Link], inputs: InputDigests
    ) -> int | None:
        """The newest reply whose system, tools and arguments are today's, if policy restarts.

        System messages do not count for a chain: they must stand where they stood.
        """
        latest, stop = found.latest, found.latest_index + 1
        if not self._policy.restarts or latest is None or latest.inputs != inputs:
            return None
        recorded = [link.digest for link in latest.conversation()]
        return stop - 1 if recorded == [link.digest for link in links[:stop]] else None

    def _circumstances(
        self,
        request: ChatRequest,
        rendering: Rendering,
        links: tuple[Link, ...],
        bound: Bound | None,
    ) -> Circumstances:
        source = rendering.prepared.template.source
        return Circumstances(
            links=links,
            inputs=InputDigests.of(request),
            moment=rendering.moment,
            prints_time="strftime_now" in source,
            fingerprint=fingerprint_of(self._identity, source, request.template_arguments),
            session=request.session,
            bound=bound,
        )

    def _built(
        self,
        namespace: str,
        composition: Composition,
        found: Recognition,
        now: Circumstances,
        moved: CutMoved | None,
    ) -> BuiltPrompt:
        draft = composition.draft
        ids = tuple(draft.ids)
        departure = moved or find_departure(now.links, found.relatives, found.known)
        previous = departure.record if departure else found.latest
        compared = compare_nearest(previous, found.calls, now.inputs, ids) if previous else None
        losses: tuple[Loss, ...] = ()
        if compared is not None:
            decode = self.tokens.decode
            losses = find_losses(compared, departure, composition.rewrites, now, decode)
        parent, shared = _parent(draft.tip, compared)
        prompt = composition.generation_prompt
        return BuiltPrompt(
            ids=ids,
            text="".join(draft.text),
            spans=tuple(draft.spans),
            namespace=namespace,
            provenance=Provenance(parent, shared, prompt, composition.base, now),
            reasoning_open=self.dialect.opens_reasoning(prompt),
            losses=losses,
            snapshots_at=likely_partings(
                ids,
                self.tokens.encode(prompt, at_start=False),
                self.tokens.controls.ids,
                parent,
                shared,
            ),
        )


def _parent(tip: Record | None, compared: Comparison | None) -> tuple[Record | None, int]:
    """The known call that a prompt has most tokens in common with, and how many."""
    if compared is not None and (tip is None or compared.kept > tip.stop):
        return compared.record, compared.kept
    return (tip, tip.stop) if tip is not None else (None, 0)


def _numbered(built: BuiltPrompt, cut: Cut) -> BuiltPrompt:
    """A prompt of the messages that stay, with their numbers in the request."""
    spans = (replace(span, message_index=cut.number(span.message_index)) for span in built.spans)
    losses = (replace(loss, message_index=cut.number(loss.message_index)) for loss in built.losses)
    return replace(built, spans=tuple(spans), losses=tuple(losses), dropped=cut.dropped)
