"""The door for untrusted text: control tokens in it travel through the template in disguise."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cachefriendly.errors import ControlTokenError, RequestError
from cachefriendly.prompt.control import ControlSet
from cachefriendly.prompt.texts import TextChange

__all__ = ["Disguise", "disguise_for", "fresh_characters", "no_fresh_character"]

_PLANE_16 = range(0x100000, 0x10FFFE)
_ESCAPE_STARTS = ("udb", "u0", "u10", "%f4")  # of every spelling in `_remains_of`
_ESCAPE = "\x1a"  # "substitute"; written twice where a text holds it


@dataclass(frozen=True)
class Disguise(TextChange):
    """One fresh plane-16 character per control token that occurs in the input.

    ``origins`` says where each control token was first met, for errors.
    """

    controls: ControlSet
    placeholders: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.placeholders)

    def text(self, text: str) -> str:
        return self.controls.hide(text, self.placeholders) if self else text

    def touches(self, text: str) -> bool:
        """Whether something in ``text`` is in disguise."""
        return self.canonical(text) != _escaped(text)

    def canonical(self, text: str) -> str:
        """A form in which disguised control tokens are neither structure nor other text.

        Equal for equal disguised texts of two requests, whatever their placeholders were.
        """
        text = _escaped(text)
        for token, placeholder in self.placeholders.items():
            name = f"{_ESCAPE}{self.controls.by_text[token]}"
            text = text.replace(placeholder, f"{name};")
            if "\\u" in text:
                text = _escape_of(placeholder).sub(f"{name}u;", text)
            text = text.replace(_python_escape_of(placeholder), f"{name}p;")
        return text

    def reveal(self, text: str) -> str:
        """The original text, also where the template wrote a placeholder's JSON or Python escape.

        Raises:
            ControlTokenError: some other form of a placeholder is left.
        """
        for token, placeholder in self.placeholders.items():
            text = text.replace(placeholder, token)
            if "\\u" in text:
                spelled = json.dumps(token)[1:-1]
                text = _escape_of(placeholder).sub(spelled.replace("\\", r"\\"), text)
            # Python's spelling, where a template prints a mapping as it is.
            text = text.replace(_python_escape_of(placeholder), repr(token)[1:-1])
            if _remains_of(placeholder).search(text):
                raise ControlTokenError(
                    f"{self.origins[token]} holds the control token {token!r}, and this chat "
                    "template prints that text in a form that cannot be neutralised; remove it"
                )
        return text


def disguise_for(
    controls: ControlSet, texts: Iterable[tuple[str, str]], template_source: str
) -> Disguise:
    """Inspect every ``(where, text)`` of a request.

    Raises:
        RequestError: a text holds a lone surrogate, which has no UTF-8 form and no tokens.
    """
    origins: dict[str, str] = {}
    texts = list(texts)
    for where, text in texts:
        _check_encodable(where, text)
        for token in controls.find(text):
            origins.setdefault(token, where)
    if not origins:
        return Disguise(controls)
    fresh = fresh_characters(texts, [template_source])
    return Disguise(controls, {token: next(fresh) for token in origins}, origins)


def _check_encodable(where: str, text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{where}: character {error.start} is the lone surrogate {text[error.start]!r}, "
            "which is not text; remove it or decode the source with errors='replace'"
        ) from None


def fresh_characters(texts: Sequence[tuple[str, str]], taken: Iterable[str]) -> Iterator[str]:
    """Plane-16 characters of which neither the character nor its escape occurs in any text.

    Args:
        texts: ``(where, text)`` of a request.
        taken: other texts.
    """
    blob = "\0".join([*taken, *(text for _, text in texts)])
    lowered = blob.lower()
    escapes = any(start in lowered for start in _ESCAPE_STARTS)
    for code in _PLANE_16:
        character = chr(code)
        if character in blob or (escapes and _remains_of(character).search(lowered)):
            continue
        yield character
    raise no_fresh_character(texts)


def no_fresh_character(texts: Iterable[tuple[str, str]]) -> RequestError:
    """The error that names where most of the private characters are."""
    counts: Counter[str] = Counter()
    for where, text in texts:
        counts[where] += sum(ord(character) in _PLANE_16 for character in set(text))
    where = max(counts, key=counts.__getitem__, default="the request")
    return RequestError(
        f"{where}: the request uses every private character of plane 16, and some must be left to "
        "mark places in it; remove them"
    )


def _escaped(text: str) -> str:
    return text.replace(_ESCAPE, 2 * _ESCAPE)


def _surrogates(character: str) -> tuple[str, str]:
    high, low = divmod(ord(character) - 0x10000, 0x400)
    return f"{0xD800 + high:04x}", f"{0xDC00 + low:04x}"


def _escape_of(character: str) -> re.Pattern[str]:
    high, low = _surrogates(character)
    return re.compile(rf"\\u{high}\\u{low}", re.IGNORECASE)


def _python_escape_of(character: str) -> str:
    return f"\\U{ord(character):08x}"


def _remains_of(character: str) -> re.Pattern[str]:
    """The character itself or any JSON, Python or URL spelling of it."""
    high, low = _surrogates(character)
    percent = "".join(f"%{byte:02x}" for byte in character.encode())
    spellings = [re.escape(character), rf"u{high}\\*u{low}", rf"u0*{ord(character):x}", percent]
    return re.compile("|".join(spellings), re.IGNORECASE)
