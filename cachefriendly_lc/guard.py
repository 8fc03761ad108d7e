"""The prefix guard: what made an agent's next prompt part from what is held, and who did it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from langchain_core.messages import BaseMessage

from cachefriendly.events import Loss, MissReason
from cachefriendly.prompt.volatile import VolatileKind, volatile_value

if TYPE_CHECKING:
    from cachefriendly.events import ChatResult
    from cachefriendly_lc.calls import PreparedCall

__all__ = ["Cause", "Finding", "PrefixGuard"]

log = logging.getLogger(__name__)

Cause: TypeAlias = Literal["summarization", "context editing"]
"""A middleware of LangChain that changed the history on purpose."""

_FINDINGS_KEPT = 1000
_NO_FINDING = (MissReason.FIRST_CALL, MissReason.REUSE_OFF)
_FIXES: dict[Cause, str] = {
    "summarization": (
        "a shortened history is a new prompt, once; cachefriendly_lc.SummarizationMiddleware makes "
        "at least the summary from what is held"
    ),
    "context editing": (
        "clear many tool results at a time (clear_at_least): each clearing re-reads all that "
        "follows the first one"
    ),
}
# An agent has a shorter way than the engine's own advice, which is for those who write prompts.
_FIX_OF_VOLATILE = (
    'CacheFriendlyMiddleware(model, layout="stable") keeps the first system message and says what '
    "changes with the newest user message"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why an agent's model call could not use all that was held.

    Attributes:
        reason: as in the engine's report of the call.
        cause: the middleware that changed the history, where it is known.
        field: what changed: ``"system"``, ``"tools"``, ``"content"``, and so on.
        kind: what kind of text it is; never the text itself.
        message_index: of the changed message, counted with the system message.
        tokens_lost: tokens that were held and had to be forwarded again.
        fix: what would keep them.
    """

    reason: MissReason
    tokens_lost: int
    kind: VolatileKind | Literal["text"]
    cause: Cause | None = None
    field: str | None = None
    message_index: int | None = None
    fix: str = ""

    def __str__(self) -> str:
        by = f" by {self.cause}" if self.cause else ""
        where = f" in {self.field}" if self.field else ""
        return (
            f"{self.reason.value}{by}{where} ({self.kind}), {self.tokens_lost} tokens: {self.fix}"
        )


class PrefixGuard:
    """Turns the losses of an agent's calls into findings. Thread safe."""

    def __init__(self) -> None:
        self._findings: deque[Finding] = deque(maxlen=_FINDINGS_KEPT)
        self._told: set[tuple[object, ...]] = set()
        self._lock = threading.Lock()

    def findings(self) -> tuple[Finding, ...]:
        with self._lock:
            return tuple(self._findings)

    def looks_at(self, call: PreparedCall, result: ChatResult) -> None:
        """Note what a finished call lost; the first finding of its sort goes to the log."""
        for finding in _findings(call.source, result.report.losses):
            sort = (finding.reason, finding.cause, finding.field, finding.kind)
            with self._lock:
                self._findings.append(finding)
                known = sort in self._told
                self._told.add(sort)
            log.log(logging.DEBUG if known else logging.INFO, "kept tokens lost: %s", finding)


def _findings(messages: Sequence[BaseMessage], losses: Sequence[Loss]) -> Iterator[Finding]:
    for loss in losses:
        if loss.reason in _NO_FINDING:
            continue
        cause = _cause(messages, loss.message_index)
        value = volatile_value(loss.before, loss.after)
        yield Finding(
            reason=loss.reason,
            tokens_lost=loss.tokens_lost,
            kind=value.kind if value else "text",
            cause=cause,
            field=loss.field,
            message_index=loss.message_index,
            fix=_FIXES[cause] if cause else _fix(loss),
        )


def _fix(loss: Loss) -> str:
    return _FIX_OF_VOLATILE if loss.reason is MissReason.VOLATILE_FIELD else loss.fix


def _cause(messages: Sequence[BaseMessage], index: int | None) -> Cause | None:
    """Both middlewares sign the messages they put in place of others."""
    if index is None or not 0 <= index < len(messages):
        return None
    message = messages[index]
    if message.additional_kwargs.get("lc_source") == "summarization":
        return "summarization"
    return "context editing" if "context_editing" in message.response_metadata else None
