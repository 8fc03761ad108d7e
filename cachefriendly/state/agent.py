"""What an agent knows about itself beside its messages: eight small fields, each of one class."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from cachefriendly.errors import RequestError
from cachefriendly.messages import canonical_json
from cachefriendly.state.codec import dump_json, parse_object, refuse_rest, take

if TYPE_CHECKING:
    from cachefriendly.state.diff import StateDiff

__all__ = ["AgentState", "FieldClass", "field_class"]


class FieldClass(Enum):
    """When a field may change."""

    IMMUTABLE = "never, it identifies the session or is computed"
    SEMI_IMMUTABLE = "only at a session reset, it stands at the start of every prompt"
    MUTABLE = "at any turn"


_CLASSES = {
    "session_id": FieldClass.IMMUTABLE,
    "context_hash": FieldClass.IMMUTABLE,
    "cache_key": FieldClass.IMMUTABLE,
    "system_prompt": FieldClass.SEMI_IMMUTABLE,
    "business_rules": FieldClass.SEMI_IMMUTABLE,
    "clock": FieldClass.SEMI_IMMUTABLE,
    "last_user_query": FieldClass.MUTABLE,
    "step_count": FieldClass.MUTABLE,
}


def field_class(name: str) -> FieldClass:
    """The class of a field of `AgentState`.

    Raises:
        RequestError: there is no such field.
    """
    if name not in _CLASSES:
        raise RequestError(f"AgentState has no field {name!r}; known: {', '.join(_CLASSES)}")
    return _CLASSES[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """The state of one agent session. ``context_hash`` and ``cache_key`` are computed.

    Attributes:
        session_id: names the session for good.
        system_prompt: the prompt as written, anchors unfilled: volatile values do not count.
        business_rules: further fixed text the agent obeys.
        clock: what the session calls now (ISO 8601), fixed at its start; None when it needs none.
        last_user_query: the newest question.
        step_count: model calls so far.
    """

    session_id: str
    system_prompt: str = ""
    business_rules: str = ""
    clock: str | None = None
    last_user_query: str = ""
    step_count: int = 0

    def __post_init__(self) -> None:
        for name in ("session_id", "system_prompt", "business_rules", "last_user_query"):
            _check_type(name, getattr(self, name), str)
        if self.clock is not None:
            _check_type("clock", self.clock, str)
        _check_type("step_count", self.step_count, int)
        if self.step_count < 0:
            raise RequestError(f"step_count={self.step_count} is negative; it counts from 0")
        if not self.session_id:
            raise RequestError("session_id is empty; give the session a name")

    @property
    def context_hash(self) -> str:
        """16 hex digits over the system prompt and the business rules, nothing else."""
        return _hex16([self.system_prompt, self.business_rules])

    @property
    def cache_key(self) -> str:
        """The context hash and a fingerprint of what may change each turn.

        A label for logs and stores. Reuse never depends on it: it comes from identical tokens.
        """
        changing = [self.session_id, self.clock, self.last_user_query, self.step_count]
        return f"{self.context_hash}-{_hex16(changing)}"

    def apply(self, diff: StateDiff) -> AgentState:
        """The state after ``diff``. Diffs that only concern messages change nothing."""
        return replace(self, **diff.changes) if diff.changes else self

    def to_json(self) -> str:
        """One JSON object with all eight fields."""
        return dump_json(state_to_dict(self), "AgentState")

    @classmethod
    def from_json(cls, text: str) -> AgentState:
        """Inverse of `to_json`; a computed field that does not fit the others is refused."""
        return state_from_dict(parse_object(text, "AgentState"))


def state_to_dict(state: AgentState) -> dict[str, Any]:
    return {name: getattr(state, name) for name in _CLASSES}


def state_from_dict(data: Mapping[str, Any]) -> AgentState:
    rest = dict(data)
    stored = {name: take(rest, name, str, default=None) for name in ("context_hash", "cache_key")}
    state = AgentState(
        session_id=take(rest, "session_id", str),
        system_prompt=take(rest, "system_prompt", str, default=""),
        business_rules=take(rest, "business_rules", str, default=""),
        clock=take(rest, "clock", str, default=None),
        last_user_query=take(rest, "last_user_query", str, default=""),
        step_count=take(rest, "step_count", int, default=0),
    )
    refuse_rest(rest, "AgentState")
    for name, value in stored.items():
        if value not in (None, getattr(state, name)):
            raise RequestError(
                f"{name}={value!r} does not belong to these fields (expected "
                f"{getattr(state, name)!r}); the stored state was altered outside"
            )
    return state


def _check_type(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RequestError(f"{name} is {type(value).__name__}; it must be a {kind.__name__}")


def _hex16(value: Any) -> str:
    text = canonical_json(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
