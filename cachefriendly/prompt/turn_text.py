"""A recorded call as compact JSON text, and back: what it adds to its parent, and a check.

One JSON object on one line::

    format    what this is and in which version
    identity  of tokenizer, templates and model; ids mean nothing under another one
    handle    of the recorded call
    parent    handle of the call it extends; null: the text holds everything itself
    packed    base85 of the deflated payload
    check     names all the rest

The payload is JSON too: messages, token ids, digests. Deflated, ids as numbers take no more room
than packed bits would. A call whose parent is no earlier part of its own conversation (an edited
history, a moved cut) is written whole: a reader may not have that parent.
"""

from __future__ import annotations

import json
import zlib
from array import array
from base64 import b85decode, b85encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from cachefriendly.errors import RequestError
from cachefriendly.prompt.chain import Link, links_of
from cachefriendly.prompt.digests import digest_of
from cachefriendly.prompt.inputs import InputDigests
from cachefriendly.prompt.record import PromptBase, Record, content_name
from cachefriendly.prompt.tokens import TextTokenizer
from cachefriendly.state.codec import (
    message_from_dict,
    message_to_dict,
    parse_object,
    refuse_rest,
    take,
    text_mapping,
)

__all__ = ["TurnText", "turn_text"]

_FORMAT = "cachefriendly-turn/1"
_MAX_PAYLOAD = 1 << 26  # bytes that deflated ones may grow to


def turn_text(record: Record, identity: str) -> str:
    """The text of a record.

    Raises:
        RequestError: a message of it holds what JSON does not know.
    """
    parent = record.parent if _extends(record) else None
    payload = _dump(_payload(record, parent), record.handle)
    turn = TurnText(
        identity=identity,
        handle=record.handle,
        parent=parent.handle if parent else None,
        packed=b85encode(zlib.compress(payload, 9)).decode(),
    )
    fields = {"format": _FORMAT, **asdict(turn), "check": turn.check()}
    return json.dumps(fields, separators=(",", ":"))


def _extends(record: Record) -> bool:
    """The parent's whole conversation is the start of the record's."""
    parent = record.parent
    return parent is not None and record.shared_links == parent.shared_links + len(parent.links)


def _payload(record: Record, parent: Record | None) -> dict[str, Any]:
    """What the record does not have in common with ``parent``."""
    links: Sequence[Link] = record.links if parent else record.conversation()
    own = list(record.own) if parent else record.ids()[: record.prompt_stop]
    payload: dict[str, Any] = {
        "messages": [message_to_dict(link.message) for link in links],
        "own": own,
        "output": list(record.output),
        "base": [record.base.run_length, record.base.digest.hex()],
    }
    if parent:
        payload["shared"] = record.shared
    # Where a history was cut, the chain goes on from messages that are not here.
    chains = _unlike(links, links_of((link.message for link in links), _behind(parent)))
    if chains:
        payload["chains"] = chains
    if record.bound is not None:
        payload["bound"] = dict(record.bound)
    if parent is None or parent.inputs != record.inputs:
        payload["inputs"] = [digest.hex() for digest in record.inputs]
    if parent is None or _moment(parent.moment) != _moment(record.moment):
        payload["moment"] = _moment(record.moment)
    if parent is None or parent.generation_prompt != record.generation_prompt:
        payload["generation_prompt"] = record.generation_prompt
    return payload


def _unlike(links: Sequence[Link], computed: Sequence[Link]) -> list[str]:
    """Every chain, when one is not what it would be without messages in between."""
    if all(link.chain == other.chain for link, other in zip(links, computed, strict=True)):
        return []
    return [link.chain.hex() for link in links]


def _behind(parent: Record | None) -> bytes:
    return parent.chain if parent else b""


def _moment(moment: datetime) -> list[str | None]:
    """A template may print the name of the time zone, which ISO 8601 does not carry."""
    return [moment.isoformat(), moment.tzname()]


def _dump(payload: dict[str, Any], handle: str) -> bytes:
    try:
        text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise RequestError(f"{handle} cannot be stored as JSON: {error}") from error
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class TurnText:
    """The outside of a text, read; what is packed is not looked at before `record`."""

    identity: str
    handle: str
    parent: str | None
    packed: str

    @classmethod
    def read(cls, text: str) -> TurnText:
        """Read the outside.

        Raises:
            RequestError: this is no turn of this version, or it was torn or altered.
        """
        rest = parse_object(text, "turn")
        if take(rest, "format", str) != _FORMAT:
            raise RequestError(f"not a {_FORMAT}")
        turn = cls(
            identity=take(rest, "identity", str),
            handle=take(rest, "handle", str),
            parent=take(rest, "parent", str, default=None),
            packed=take(rest, "packed", str),
        )
        check = take(rest, "check", str)
        refuse_rest(rest, "turn")
        if check != turn.check():
            raise RequestError("it was torn or altered")
        return turn

    def check(self) -> str:
        """Names these fields."""
        parts = (_FORMAT, self.identity, self.handle, self.parent or "", self.packed)
        return digest_of(*(part.encode("utf-8", "surrogatepass") for part in parts)).hex()

    def record(
        self, namespace: str, parent: Record | None, tokens: TextTokenizer, vocabulary: int
    ) -> Record:
        """The record, equal in all it does to the one that was written.

        Args:
            parent: the record named by ``self.parent``.
            vocabulary: ids are below it.

        Raises:
            RequestError: the values do not fit each other, or belong to another namespace.
        """
        if (parent.handle if parent else None) != self.parent:
            raise RequestError("its parent is not here")
        rest = self._unpacked()
        shared = take(rest, "shared", int, default=0)
        own, output = (_ids(take(rest, name, list), vocabulary) for name in ("own", "output"))
        links = _links(rest, _behind(parent))
        record = Record(
            namespace=namespace,
            handle=self.handle,
            parent=parent,
            shared=shared,
            own=own,
            output=output,
            output_text=tokens.decode_after(output),
            shared_links=parent.shared_links + len(parent.links) if parent else 0,
            links=links,
            generation_prompt=_inherited(rest, "generation_prompt", str, parent),
            base=_base(take(rest, "base", list)),
            inputs=_inputs(rest, parent),
            moment=_moment_of(rest, parent),
            bound=_bound(rest),
        )
        refuse_rest(rest, "turn")
        _check(record)
        return record

    def _unpacked(self) -> dict[str, Any]:
        try:
            inflater = zlib.decompressobj()
            payload = inflater.decompress(b85decode(self.packed), _MAX_PAYLOAD)
        except (ValueError, zlib.error) as error:
            raise RequestError(f"what is packed cannot be read: {error}") from error
        if not inflater.eof:
            raise RequestError("what is packed has no end")
        # NaN and lone surrogates may stand in what a model wrote; `parse_object` is for our own.
        value = json.loads(payload.decode("utf-8", "surrogatepass"))
        if not isinstance(value, dict):
            raise RequestError("what is packed is no JSON object")
        return value


def _ids(values: Iterable[Any], vocabulary: int) -> array[int]:
    ids = array("I")
    for value in values:
        if type(value) is not int or not 0 <= value < vocabulary:
            raise RequestError(f"{value!r} is no token id of this model")
        ids.append(value)
    return ids


def _links(rest: dict[str, Any], behind: bytes) -> tuple[Link, ...]:
    links = links_of(map(message_from_dict, take(rest, "messages", list)), behind)
    chains = take(rest, "chains", list, default=None)
    if chains is not None:
        pairs = zip(links, map(_digest, chains), strict=True)
        links = tuple(Link(link.message, link.digest, chain) for link, chain in pairs)
    if not links or links[-1].message.role != "assistant":
        raise RequestError("it ends with no reply")
    return links


def _digest(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise RequestError(f"{text!r} is no digest") from error


def _base(value: list[Any]) -> PromptBase:
    length, digest = value
    return PromptBase(int(length), _digest(digest))


def _inherited(rest: dict[str, Any], name: str, kind: type, parent: Record | None) -> Any:
    """What stands in the text, else what the parent has."""
    if parent is None or name in rest:
        return take(rest, name, kind)
    return getattr(parent, name)


def _inputs(rest: dict[str, Any], parent: Record | None) -> InputDigests:
    value = _inherited(rest, "inputs", list, parent)
    return value if isinstance(value, InputDigests) else InputDigests(*map(_digest, value))


def _bound(rest: dict[str, Any]) -> dict[str, str] | None:
    value = take(rest, "bound", dict, default=None)
    return None if value is None else text_mapping(value, "bound")


def _moment_of(rest: dict[str, Any], parent: Record | None) -> datetime:
    value = _inherited(rest, "moment", list, parent)
    if isinstance(value, datetime):
        return value
    text, zone = value
    moment = datetime.fromisoformat(text)
    offset = moment.utcoffset()
    return moment if offset is None else moment.replace(tzinfo=timezone(offset, zone))


def _check(record: Record) -> None:
    """The handle names prompt, output and reply: they are what they were.

    Raises:
        RequestError: they are not.
    """
    parent = record.parent
    if not 0 <= record.shared <= (parent.stop if parent else 0):
        raise RequestError("it shares more with its parent than that one has")
    ids = record.ids()
    name = content_name(
        record.namespace, ids[: record.prompt_stop], record.output, record.reply_digest
    )
    if record.handle.rpartition(":")[2] != name:
        raise RequestError("its handle is that of another call, or of another namespace")
