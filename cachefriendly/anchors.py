"""Anchors: places for volatile values in a system prompt that keep their name there for good.

The prompt says ``[TIME_STAMP_19]`` in every call; what stands for it now goes with the newest user
message (see `cachefriendly.prompt.bindings`), so a new value costs its own tokens and no others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message

__all__ = ["Anchor", "AnchorMode", "AnchoredPrompt", "AnchoredText"]

AnchorMode: TypeAlias = Literal["late"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\[([A-Z][A-Z0-9_]*)_([0-9]{1,6})\]")


@dataclass(frozen=True, slots=True)
class Anchor:
    """One place: ``Anchor("user_id", width=12)`` is written ``[USER_ID_12]``.

    ``str(anchor)`` is how it is written, so f-strings take it. ``width`` is the most characters a
    value may have.

    Raises:
        RequestError: the name is no identifier, or the width is not positive.
    """

    name: str
    width: int

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise RequestError(
                f"anchor name {self.name!r} is not usable; take letters, digits and underscores, "
                "a letter first"
            )
        if isinstance(self.width, bool) or not isinstance(self.width, int) or self.width < 1:
            raise RequestError(f"anchor {self.name!r}: width={self.width!r} must be 1 or more")
        object.__setattr__(self, "name", self.name.lower())

    @property
    def label(self) -> str:
        """What stands between the brackets; the key in `Message.anchors`."""
        return f"{self.name.upper()}_{self.width}"

    def __str__(self) -> str:
        return f"[{self.label}]"

    def text_of(self, value: object) -> str:
        """The value as text.

        Raises:
            RequestError: it is wider than the anchor.
        """
        text = str(value)
        if len(text) > self.width:
            raise RequestError(
                f"anchor {self}: the value {text[:80]!r} has {len(text)} characters, its width is "
                f"{self.width}; shorten the value, or write [{self.name.upper()}_{len(text)}] in "
                "the template"
            )
        return text


@dataclass(frozen=True, slots=True)
class AnchoredText:
    """A system prompt with its anchors; what it becomes in a framework is up to subclasses.

    Attributes:
        text: the prompt as written: what every call sends, and what
            `AgentState.system_prompt` and its ``context_hash`` are made of.
        anchors: in the order in which they first occur.
    """

    text: str
    anchors: tuple[Anchor, ...]

    @classmethod
    def from_template(cls, template: str, *, mode: AnchorMode = "late") -> Self:
        """Find the anchors of a text: ``[USER_ID_12]`` is the anchor ``user_id``, 12 wide.

        Raises:
            RequestError: one name occurs with two widths, or another ``mode`` is asked for.
        """
        _check_mode(mode)
        anchors: dict[str, Anchor] = {}
        for name, width in _PLACEHOLDER.findall(template):
            anchor = Anchor(name, int(width))
            known = anchors.setdefault(anchor.name, anchor)
            if known != anchor:
                raise RequestError(f"{known} and {anchor} are one anchor with two widths; use one")
        return cls(template, tuple(anchors.values()))

    def bind(self, **values: object) -> Mapping[str, str]:
        """Values by label, for `Message.anchors`.

        Raises:
            RequestError: a value is missing, is too wide, or belongs to no anchor.
        """
        names = [anchor.name for anchor in self.anchors]
        missing = [name for name in names if name not in values]
        unknown = [name for name in values if name not in names]
        if missing or unknown:
            known = ", ".join(names) or "none"
            wrong = f"no value for {missing[0]!r}" if missing else f"no anchor {unknown[0]!r}"
            raise RequestError(f"{wrong}; the anchors of this prompt are: {known}")
        return {anchor.label: anchor.text_of(values[anchor.name]) for anchor in self.anchors}


def _check_mode(mode: str) -> None:
    if mode == "padded":
        raise RequestError(
            "mode='padded' is not available: keys behind a value depend on the value, so reuse "
            "there would not be exact; use mode='late'"
        )
    if mode != "late":
        raise RequestError(f"mode={mode!r} is unknown; use mode='late'")


@dataclass(frozen=True, slots=True)
class AnchoredPrompt(AnchoredText):
    """A system prompt with anchors, as a message of the engine.

    Example:
        >>> prompt = AnchoredPrompt.from_template("You help [USER_ID_12]. It is [TIME_STAMP_19].")
        >>> prompt.message(user_id="u-77", time_stamp="2026-11-30 08:15:00")
    """

    def message(self, **values: object) -> Message:
        """The system message with what the anchors stand for now."""
        return Message("system", self.text, anchors=self.bind(**values))
