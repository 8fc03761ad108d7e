"""What one finished call had: prompt ids, output ids, messages. Ids are the truth, not text."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from cachefriendly.messages import Message
from cachefriendly.prompt.chain import Link
from cachefriendly.prompt.digests import digest_of
from cachefriendly.prompt.inputs import InputDigests

__all__ = ["PromptBase", "Record", "content_name"]


class PromptBase(NamedTuple):
    """By what a later prompt knows that it starts with this one (see `Draft.beyond`).

    ``run_length`` characters, each disguised control token being one, lie between the last recorded
    block of the prompt and its generation prompt; ``digest`` names that block and those characters.
    """

    run_length: int
    digest: bytes


@dataclass(frozen=True, eq=False, slots=True)
class Record:
    """One finished call. It holds only what it adds to its parent, in ids and in messages.

    Token intervals of ``ids()``::

        [0, shared)             the first ids of ``parent``, all of them as a rule
        [shared, prompt_stop)   what the prompt added, ``own``
        [prompt_stop, stop)     ``output``, without the sampled stop token

    Attributes:
        parent: the call this prompt has most in common with; None when that is nothing.
        shared: how many tokens these are; less than all where something was rewritten or edited.
        shared_links: how many messages of ``parent.conversation()`` come before ``links``.
        links: the messages this call added, the reply last: in canonical form, arguments in the
            order the model wrote them.
        generation_prompt: the text of it in this call; "" where it is not separable.
        moment: what ``strftime_now`` printed; calls that continue this conversation print it too.
        bound: anchored values bound before the newest user message; None: the call had no anchors.
    """

    namespace: str
    handle: str
    parent: Record | None
    shared: int
    own: array[int]
    output: array[int]
    output_text: str
    shared_links: int
    links: tuple[Link, ...]
    generation_prompt: str
    base: PromptBase
    inputs: InputDigests
    moment: datetime
    bound: Mapping[str, str] | None = None

    @property
    def prompt_stop(self) -> int:
        return self.shared + len(self.own)

    @property
    def stop(self) -> int:
        return self.prompt_stop + len(self.output)

    @property
    def asked_messages(self) -> int:
        """How many messages the prompt had: those before the reply."""
        return self.shared_links + len(self.links) - 1

    @property
    def reply(self) -> Message:
        return self.links[-1].message

    @property
    def reply_digest(self) -> bytes:
        return self.links[-1].digest

    @property
    def chain(self) -> bytes:
        """Names the whole conversation, the reply included (see `Link`)."""
        return self.links[-1].chain

    @property
    def cost(self) -> int:
        """Tokens this record holds itself; every message counts as one more."""
        return len(self.own) + len(self.output) + len(self.links)

    def upwards(self) -> Iterator[Record]:
        """This record, its parent, and so on."""
        record: Record | None = self
        while record is not None:
            yield record
            record = record.parent

    def ids(self) -> list[int]:
        """Prompt and output ids."""
        ids: list[int] = []
        for record in reversed(list(self.upwards())):
            del ids[record.shared :]
            ids.extend(record.own)
            ids.extend(record.output)
        return ids

    def conversation(self) -> list[Link]:
        """All messages of the call, the reply last."""
        links: list[Link] = []
        for record in reversed(list(self.upwards())):
            del links[record.shared_links :]
            links.extend(record.links)
        return links


def content_name(
    namespace: str, prompt: Sequence[int], output: Sequence[int], reply_digest: bytes
) -> str:
    """The end of a call's handle. Equal calls have equal handles in every process."""
    ids = (array("I", prompt).tobytes(), array("I", output).tobytes())
    return digest_of(namespace.encode("utf-8", "surrogatepass"), *ids, reply_digest).hex()
