"""Control tokens that a template makes by joining pieces of untrusted text, and how they are found.

No text holds such a token, so no disguise covers it: ``'<' ~ key ~ '>'`` with the key ``think``,
or a name that ends with ``<|im_`` before a content that starts with ``end|>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cachefriendly.errors import ControlTokenError
from cachefriendly.prompt.control import ControlSet
from cachefriendly.prompt.disguise import fresh_characters
from cachefriendly.prompt.texts import TextChange

__all__ = ["Seams", "Severed"]

_TAG = re.compile(r"</?[^<>\s]{1,40}>")


@dataclass(frozen=True)
class Severed(TextChange):
    """Untrusted text whose pieces cannot become part of a control token any more.

    ``where`` is one place with such a piece. ``fresh`` has one character for each end of control
    tokens, and ``bar`` is put before a text that literals of the template would make a token of.
    """

    seams: Seams
    where: str
    fresh: Mapping[str, str]
    bar: str

    def text(self, text: str) -> str:
        severed = self.seams.ends.sub(self._replaced, text)
        return self.bar + severed if self.seams.is_framed(text) else severed

    def _replaced(self, match: re.Match[str]) -> str:
        """Tags that the template looks for, and that are no control tokens, stay as they are."""
        return self.fresh.get(match.group(), match.group())


class Seams:
    """What to look for in untrusted text, for one template and its control set. Immutable.

    Attributes:
        ends: the first and last characters of control tokens, and tags the template looks for.
    """

    def __init__(self, controls: ControlSet, literals: str) -> None:
        self._controls = controls
        tokens = [token.strip() for token in controls.by_text if token.strip()]
        characters = {end for token in tokens for end in (token[0], token[-1])}
        self.characters = sorted(end for end in characters if not end.isalnum())
        tags = {tag for tag in _TAG.findall(literals) if not any(tag in t for t in tokens)}
        self.ends = _any_of([*sorted(tags, key=len, reverse=True), *self.characters])
        self._suspect = _any_of(self.characters)
        words = [token for token in tokens if token[0].isalnum() or token[-1].isalnum()]
        self._starts = tuple({token[cut:] for token in words for cut in range(1, len(token))})
        self._stops = tuple({token[:cut] for token in words for cut in range(1, len(token))})
        framed = _framed(tokens, literals.split("\0"))
        self._frames = frozenset(text for text in framed if not self._suspect.search(text))

    def suspects(self, text: str) -> bool:
        """Whether ``text`` may become part of a control token. Cheap; plain text is no suspect."""
        return self._suspect.search(text) is not None or self.is_framed(text)

    def is_framed(self, text: str) -> bool:
        """Whether what surrounds ``text`` would make a token of it without any end character."""
        if self._starts and (text.startswith(self._starts) or text.endswith(self._stops)):
            return True
        word = text.strip().casefold()
        return bool(word) and any(word in frame for frame in self._frames)

    def sever(self, texts: Sequence[tuple[str, str]], taken: Iterable[str]) -> Severed | None:
        """How to take apart the suspects among ``(where, text)``, if there are any.

        Its characters occur neither in these texts nor in those already ``taken``.
        """
        where = next((where for where, text in texts if self.suspects(text)), None)
        if where is None:
            return None
        fresh = fresh_characters(texts, taken)
        return Severed(self, where, {end: next(fresh) for end in self.characters}, next(fresh))

    def check(self, text: str, severed: str, where: str) -> None:
        """Compare the structure of a rendered prompt with that of its severed form.

        Raises:
            ControlTokenError: a token is in one of them only.
        """
        shown, trusted = self._controls.structure(text), self._controls.structure(severed)
        if shown == trusted:
            return
        pairs = zip_longest(shown, trusted)
        token = next(left or right for left, right in pairs if left != right)
        raise ControlTokenError(
            f"this chat template joins untrusted pieces of text to the control token {token!r}; "
            f"one of them is in {where}; remove it"
        )


def _framed(tokens: Iterable[str], literals: Iterable[str]) -> Iterator[str]:
    """What lacks between the end of one literal and the start of another to make a token."""
    longest = max(map(len, tokens), default=0)
    stops, starts = {""}, {""}
    for literal in literals:
        for size in range(1, min(longest, len(literal) + 1)):
            stops.add(literal[-size:])
            starts.add(literal[:size])
    for token in tokens:
        before = [cut for cut in range(len(token)) if token[:cut] in stops]
        behind = [cut for cut in range(1, len(token) + 1) if token[cut:] in starts]
        for first in before:
            for last in behind:
                if first < last and (first, last) != (0, len(token)):
                    yield token[first:last].casefold()


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)) or "(?!)")
