"""Messages to token ids, with everything a model generated kept as it was generated."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, time
from typing import Any

from cachefriendly.config import Clock, HistoryPolicy
from cachefriendly.messages import Message, canonical_json, check_conversation, message_digest
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.built import BuiltPrompt, Provenance
from cachefriendly.prompt.canonical_tools import canonical_tools, check_tool_names
from cachefriendly.prompt.compose import Composition, compose
from cachefriendly.prompt.decode import StreamDecoder
from cachefriendly.prompt.digests import chain_digests, digest_of
from cachefriendly.prompt.disguise import Disguise, disguise_for, texts_of_message, texts_of_value
from cachefriendly.prompt.fingerprint import fingerprint_of, tokenizer_digest
from cachefriendly.prompt.losses import Circumstances, find_losses
from cachefriendly.prompt.rendering import PreparedTemplate, Rendering
from cachefriendly.prompt.template import check_arguments, template_source
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.prompt.transcript import Recognition, Record, Transcript
from cachefriendly.request import ChatRequest
from cachefriendly.tools.dialect import Dialect

__all__ = ["BuiltPrompt", "PromptBuilder"]


class PromptBuilder:
    """Builds prompts and records what came of them. Thread safe.

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
    ) -> None:
        self.policy = policy
        self.transcript = Transcript() if transcript is None else transcript
        self._clock = clock
        self._now = now
        self._identity = digest_of(model_fingerprint.encode(), tokenizer_digest(tokenizer))
        sources = [
            template_source(tokenizer, with_tools=with_tools) for with_tools in (False, True)
        ]
        plain = PreparedTemplate(tokenizer, sources[0])
        same = sources[0] == sources[1]
        self._prepared = (plain, plain if same else PreparedTemplate(tokenizer, sources[1]))

    @property
    def dialect(self) -> Dialect:
        """The tool dialect of the template that is used when tools are given."""
        return self._prepared[1].dialect

    @property
    def tokens(self) -> TextTokenizer:
        """Text to ids and back on frozen clones."""
        return self._prepared[0].tokens

    def decoder(self) -> StreamDecoder:
        """A decoder for one reply."""
        return StreamDecoder(self.tokens)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text as the start of a prompt; control tokens in it are structure."""
        return self.tokens.encode(text)

    def forget(self, namespace: str) -> None:
        """Drop every record of a namespace."""
        self.transcript.forget(namespace)

    def build(self, request: ChatRequest, *, generation_prompt: bool = True) -> BuiltPrompt:
        """The prompt of a request. ``generation_prompt=False``: the history only.

        Raises:
            RequestError: messages, tools or template arguments cannot be meant.
            TemplateError: the template refuses the messages.
            ControlTokenError: a control token in untrusted text cannot be neutralised.
        """
        _check(request)
        digests = [message_digest(message) for message in request.messages]
        chains = chain_digests(request.messages, digests)
        found = self.transcript.recognise(request.namespace, request.messages, digests, chains)
        inputs = _inputs(request)
        messages = _recorded_form(request.messages, found)
        rendering, messages = self._rendering(request, messages, found)
        composition = compose(
            rendering,
            messages,
            found.known,
            policy=self.policy,
            add_generation_prompt=generation_prompt,
            restart=self._restart(found, inputs),
        )
        return self._built(request, rendering, composition, found, (chains[-1], inputs))

    def commit(self, built: BuiltPrompt, output_ids: Sequence[int], reply: Message) -> str:
        """Record a finished call; returns the handle of the reply.

        ``output_ids`` are without the sampled stop token, ``reply`` is what they were parsed to.
        """
        origin = built.provenance
        if origin is None:
            raise ValueError("only a prompt from PromptBuilder.build can be committed")
        reply = reply.without_handle()
        digest = message_digest(reply)
        record = Record(
            namespace=built.namespace,
            handle=_handle(built, origin.fingerprint, output_ids, digest),
            parent=origin.parent if origin.shared else None,
            shared=origin.shared,
            own=array("I", built.ids[origin.shared :]),
            output=array("I", output_ids),
            output_text=self.tokens.decode_after(output_ids),
            reply=reply,
            reply_digest=digest,
            chain=digest_of(origin.chain, digest),
            generation_prompt=origin.generation_prompt,
            run_length=origin.run_length,
            base=origin.base,
            inputs=origin.inputs,
            moment=origin.moment,
        )
        return self.transcript.add(record)

    def _rendering(
        self, request: ChatRequest, messages: Sequence[Message], found: Recognition
    ) -> tuple[Rendering, list[Message]]:
        prepared = self._prepared[bool(request.tools)]
        disguise = disguise_for(
            prepared.controls, _texts(request, messages), prepared.template.source
        )
        tools = request.tools if self.policy == "exact" else canonical_tools(request.tools)
        rendering = Rendering(
            prepared,
            disguise,
            tuple(disguise.tool(tool) for tool in tools),
            disguise.value(request.template_arguments),
            self._moment(found),
        )
        return rendering, [disguise.message(_thought_apart(m, disguise)) for m in messages]

    def _moment(self, found: Recognition) -> datetime:
        """What ``strftime_now`` prints: a conversation keeps the time of its first call."""
        now = self._now()
        if self._clock == "day":
            return datetime.combine(now.date(), time())
        if self._clock == "session" and (found.latest or found.known):
            return (found.latest or next(iter(found.known.values()))).moment
        return now

    def _restart(self, found: Recognition, inputs: tuple[bytes, bytes, bytes]) -> int | None:
        """Policy ``append``: the newest reply whose system, tools and arguments are today's."""
        if self.policy != "append" or found.latest is None or found.latest.inputs != inputs:
            return None
        return found.latest_index

    def _built(
        self,
        request: ChatRequest,
        rendering: Rendering,
        composition: Composition,
        found: Recognition,
        identity: tuple[bytes, tuple[bytes, bytes, bytes]],
    ) -> BuiltPrompt:
        draft = composition.draft
        chain, inputs = identity
        ids = tuple(draft.ids)
        source = rendering.prepared.template.source
        tokens = rendering.prepared.tokens
        prints_time = "strftime_now" in source
        now = Circumstances(request.messages, inputs, rendering.moment, prints_time, tokens.decode)
        parent = draft.tip or found.latest
        origin = Provenance(
            parent=parent,
            shared=common_prefix(parent.ids(), ids) if parent else 0,
            generation_prompt=composition.generation_prompt,
            run_length=composition.base[0],
            base=composition.base[1],
            chain=chain,
            inputs=inputs,
            moment=rendering.moment,
            fingerprint=fingerprint_of(self._identity, source, request.template_arguments),
        )
        return BuiltPrompt(
            ids=ids,
            text="".join(draft.text),
            spans=tuple(draft.spans),
            namespace=request.namespace,
            reasoning_open=composition.generation_prompt.rfind("<think>")
            > composition.generation_prompt.rfind("</think>"),
            losses=find_losses(ids, composition.rewrites, found, now),
            provenance=origin,
        )


def _check(request: ChatRequest) -> None:
    check_conversation(request.messages)
    check_tool_names(request.tools)
    check_arguments(request.template_arguments)


def _inputs(request: ChatRequest) -> tuple[bytes, bytes, bytes]:
    """Digests of the system messages, the tools and the template arguments."""
    systems = [message.content for message in request.messages if message.role == "system"]
    tools = [[t.name, t.description, t.parameters] for t in canonical_tools(request.tools)]
    values = (systems, tools, dict(request.template_arguments))
    first, second, third = (
        digest_of(canonical_json(value).encode("utf-8", "surrogatepass")) for value in values
    )
    return first, second, third


def _texts(request: ChatRequest, messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    for index, message in enumerate(messages):
        yield from texts_of_message(f"message {index} ({message.role})", message)
    for tool in request.tools:
        where = f"tool {tool.name!r}"
        yield from texts_of_value(where, [tool.name, tool.description, tool.parameters])
    for name, value in request.template_arguments.items():
        yield from texts_of_value(f"template argument {name!r}", value)


def _recorded_form(messages: Sequence[Message], found: Recognition) -> list[Message]:
    """Known replies as they were generated; call ids as the caller has them now."""
    return [
        _with_ids_of(found.known[index].reply, message) if index in found.known else message
        for index, message in enumerate(messages)
    ]


def _with_ids_of(recorded: Message, message: Message) -> Message:
    pairs = zip(recorded.tool_calls, message.tool_calls, strict=True)
    return replace(recorded, tool_calls=tuple(replace(a, id=b.id) for a, b in pairs))


def _thought_apart(message: Message, disguise: Disguise) -> Message:
    """Reasoning that a foreign reply carries in its text goes to its own field.

    Templates look for the marker to cut the reasoning off; disguised they would not find it.
    """
    close = "</think>"
    apart = message.role == "assistant" and message.reasoning is None
    if not apart or close not in disguise.placeholders or close not in message.content:
        return message
    thought = message.content.partition(close)[0].rpartition("<think>")[2]
    content = message.content.rpartition(close)[2]
    return replace(message, content=content.lstrip("\n"), reasoning=thought.strip("\n"))


def _handle(
    built: BuiltPrompt, fingerprint: str, output_ids: Sequence[int], reply_digest: bytes
) -> str:
    """Named after what it stands for: equal calls have equal handles in every process."""
    parts = (array("I", built.ids).tobytes(), array("I", output_ids).tobytes())
    content = digest_of(built.namespace.encode("utf-8", "surrogatepass"), *parts, reply_digest)
    return f"cf1:{fingerprint[:8]}:{content.hex()}"
