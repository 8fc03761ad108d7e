"""What a finished call leaves: the record of its prompt and its reply."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from cachefriendly.messages import Message
from cachefriendly.prefix import common_prefix
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.prompt.chain import Link, links_of
from cachefriendly.prompt.record import Record, content_name
from cachefriendly.prompt.tokens import TextTokenizer

__all__ = ["record_of"]


def record_of(
    built: BuiltPrompt, output_ids: Sequence[int], reply: Message, tokens: TextTokenizer
) -> Record:
    """The record of one call; ``reply`` is what ``output_ids`` were parsed to."""
    origin = built.provenance
    parent = origin.parent if origin.shared else None
    now = origin.circumstances
    links = now.links + links_of([reply.without_handle()], now.links[-1].chain)
    shared_links = _shared_links(parent, now.links)
    return Record(
        namespace=built.namespace,
        handle=_handle(built, output_ids, links[-1].digest),
        parent=parent,
        shared=origin.shared,
        own=array("I", built.ids[origin.shared :]),
        output=array("I", output_ids),
        output_text=tokens.decode_after(output_ids),
        shared_links=shared_links,
        links=tuple(link.detached() for link in links[shared_links:]),
        generation_prompt=origin.generation_prompt,
        base=origin.base,
        inputs=now.inputs,
        moment=now.moment,
        bound=now.bound.values if now.bound else None,
    )


def _shared_links(parent: Record | None, links: Sequence[Link]) -> int:
    if parent is None:
        return 0
    known = [link.digest for link in parent.conversation()]
    return common_prefix(known, [link.digest for link in links])


def _handle(built: BuiltPrompt, output_ids: Sequence[int], reply_digest: bytes) -> str:
    """Named after what it stands for: equal calls have equal handles in every process."""
    content = content_name(built.namespace, built.ids, output_ids, reply_digest)
    return f"cf1:{built.provenance.circumstances.fingerprint[:8]}:{content}"
