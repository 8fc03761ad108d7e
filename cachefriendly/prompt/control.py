"""The control set: token texts that are structure and that untrusted text must never produce."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cachefriendly.compat import template_literals

__all__ = ["ControlSet", "ControlToken", "control_set"]

# Whitespace as tokenizers strips it: Python counts the four separators U+001C-1F in, Unicode not.
_SPACES = r"[^\S\x1c-\x1f]*"


@dataclass(frozen=True, slots=True)
class ControlToken:
    """One added token that is structure, with the matching flags the tokenizer gives it."""

    text: str
    id: int
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False

    @property
    def flags(self) -> tuple[bool, bool, bool]:
        return self.lstrip, self.rstrip, self.single_word


class ControlSet:
    """Control tokens of one tokenizer and template, ready to split text at. Immutable."""

    def __init__(self, tokens: Sequence[ControlToken]) -> None:
        self.tokens = tuple(tokens)
        self.by_text: Mapping[str, int] = {token.text: token.id for token in tokens}
        self.ids = frozenset(self.by_text.values())
        self._splitter = _splitter(self.tokens)
        self._finder = re.compile(_any_of(self.by_text) or "(?!)")

    def split(self, text: str) -> Iterator[tuple[str, int | None]]:
        """Pieces of ``text`` in order: ``(stretch, None)`` or ``(matched text, control id)``."""
        last = 0
        for match in self._splitter.finditer(text):
            if match.start() > last:
                yield text[last : match.start()], None
            yield match.group(), self._id_of(match.group())
            last = match.end()
        if last < len(text):
            yield text[last:], None

    def structure(self, text: str) -> list[str]:
        """Control tokens of ``text`` in order."""
        return [matched.strip() for matched in self._splitter.findall(text)]

    def floor(self, text: str, position: int) -> int:
        """``position``, or the start of the control token of ``text`` that it would cut."""
        start = 0
        for piece, control_id in self.split(text):
            stop = start + len(piece)
            if stop > position:
                return start if control_id is not None else position
            start = stop
        return position

    def ending(self, text: str) -> str:
        """The control tokens that ``text`` ends with, and the whitespace around them."""
        tail = ""
        for piece, control_id in reversed(list(self.split(text))):
            if control_id is not None or piece.isspace():
                tail = piece + tail
                continue
            tail = piece[len(piece.rstrip()) :] + tail
            break
        return tail if tail.strip() else ""

    def said_again(self, ids: Sequence[int], said: str, text: str) -> int:
        """How much of ``text`` repeats the control tokens that a reply ends with, in characters.

        ``ids`` and ``said`` are the reply; there may be whitespace between those tokens, and in
        ``text``, which starts with them, it may be another.
        """
        end = self.structure(self.ending(said))
        written = [i for i in ids if i in self.ids]
        repeated, position, stops = [], 0, []
        for piece, control_id in self.split(text):
            position += len(piece)
            if control_id is not None:
                repeated.append(control_id)
                stops.append(position)
            elif not piece.isspace():
                break
        for count in range(min(len(end), len(repeated)), 0, -1):
            if written[-count:] == repeated[:count]:
                return stops[count - 1]
        return 0

    def _id_of(self, matched: str) -> int:
        known = self.by_text.get(matched)
        return self.by_text[matched.strip()] if known is None else known

    def find(self, text: str) -> list[str]:
        """Texts of control tokens that occur in ``text``, longest match first at each place."""
        return self._finder.findall(text)

    def hide(self, text: str, placeholders: Mapping[str, str]) -> str:
        """``text`` with every control token replaced by its placeholder."""
        return self._finder.sub(lambda match: placeholders[match.group()], text)

    def cut(self, text: str) -> list[str]:
        """``text`` cut inside every control token, so that no piece holds a whole one."""
        pieces, last = [], 0
        for match in self._finder.finditer(text):
            middle = (match.start() + match.end() + 1) // 2
            pieces.append(text[last:middle])
            last = middle
        return [piece for piece in [*pieces, text[last:]] if piece]


def control_set(tokenizer: Any, template_source: str, markers: Iterable[str]) -> ControlSet:
    """Added tokens flagged special, and those that the template or the dialect writes.

    ``markers`` are texts of the dialect and rendered by the template.

    Tokens that are blank or a plain word are left out unless flagged special: a template writes
    newlines and words too, and taking those apart in content would change ordinary text.
    """
    written = "\0".join([template_literals(template_source), *markers])
    tokens = []
    for token_id, token in tokenizer.added_tokens_decoder.items():
        text = token.content
        structural = text in written and text.strip() and not text.strip().isalnum()
        if text and (token.special or structural):
            flags = (token.lstrip, token.rstrip, token.single_word)
            tokens.append(ControlToken(text, token_id, *flags))
    return ControlSet(tokens)


def _splitter(tokens: Sequence[ControlToken]) -> re.Pattern[str]:
    """One pattern; tokens that swallow whitespace or want word boundaries get their own group."""
    groups: dict[tuple[bool, bool, bool], list[str]] = {}
    for token in tokens:
        groups.setdefault(token.flags, []).append(token.text)
    parts = []
    for (lstrip, rstrip, single_word), texts in sorted(groups.items(), reverse=True):
        body = _any_of(texts)
        if single_word:
            body = rf"(?<!\w){body}(?!\w)"
        parts.append((_SPACES if lstrip else "") + body + (_SPACES if rstrip else ""))
    return re.compile("|".join(parts) or "(?!)")


def _any_of(texts: Iterable[str]) -> str:
    """A pattern for any of ``texts``, longest first, as a trie.

    Some vocabularies have thousands of reserved tokens that start alike; a flat alternation tries
    each of them at every ``<``.
    """
    root: dict[str, Any] = {}
    for text in texts:
        node = root
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return _trie_pattern(root) if root else ""


def _trie_pattern(node: dict[str, Any]) -> str:
    """Chains without a branch are written flat, so that depth is the number of branches."""
    prefix = ""
    while len(node) == 1 and "" not in node:
        ((character, node),) = node.items()
        prefix += re.escape(character)
    branches = [re.escape(key) + _trie_pattern(child) for key, child in node.items() if key]
    if not branches:
        return prefix
    return f"{prefix}(?:{'|'.join(branches)}){'?' if '' in node else ''}"
