"""Values that change by themselves: where two texts first differ in a time, date, id or counter."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from cachefriendly.prefix import common_prefix

__all__ = ["VolatileKind", "VolatileValue", "volatile_value"]

VolatileKind: TypeAlias = Literal["time", "date", "uuid", "counter"]

_LEAD = 40
_EXCERPT = 200
_REACH = 200  # no value is longer, and none goes over a line's end

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_WEEKDAY = (
    r"(?:Mon(?:day)?|Tue(?:s|sday)?|Wed(?:nesday)?|Thu(?:rs|rsday)?|Fri(?:day)?|Sat(?:urday)?"
    r"|Sun(?:day)?)\.?,? "
)
_DAY = r"[0-3]?\d(?:st|nd|rd|th)?"
_DATE = (
    rf"(?:{_WEEKDAY})?(?:\d{{4}}(?P<a>[-/.])[01]?\d(?P=a)[0-3]?\d"
    rf"|[0-3]?\d(?P<b>[-/.])[0-3]?\d(?P=b)(?:\d{{4}}|\d\d)"
    rf"|{_MONTH} {_DAY}(?:,? \d{{4}})?|{_DAY} {_MONTH}(?:,? \d{{4}})?)"
)
_CLOCK = (
    r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?"
    r"(?: ?[AaPp]\.?[Mm]\b\.?)?(?: ?Z\b| ?[+-]\d\d:?\d\d)?"
)
_COMPACT = r"\d{8}T\d{6}(?:\.\d{1,9})?Z?"
_SECONDS = r"1[5-9]\d{8}(?:\d{3}|\d{6}|\.\d{1,9})?"  # since 1970, from 2017 on
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
# A bare number may be a rule of the user's; only behind one of these words does it count something.
_COUNTED = (
    r"(?:attempt|call|count|counter|iteration|message|request|round|sequence|step|turn)s?"
    r"(?: (?:count|counter|id|no\.?|number))?(?: is)?[ \t]{0,3}[:=#]?[ \t]{0,3}#?"
)

# In this order: a moment holds a date.
_FORMS: tuple[tuple[VolatileKind, re.Pattern[str]], ...] = (
    ("uuid", re.compile(rf"(?<![\w-])(?P<value>{_UUID})(?![\w-])")),
    ("time", re.compile(rf"(?<![\w:./-])(?P<value>{_DATE}(?:,? (?:at )?|T|_){_CLOCK})(?![\w:])")),
    ("time", re.compile(rf"(?<![\w:.-])(?P<value>{_CLOCK})(?![\w:])")),
    ("time", re.compile(rf"(?<![\w.,-])(?P<value>{_COMPACT}|{_SECONDS})(?!\w|[.,]\d)")),
    ("date", re.compile(rf"(?<![\w./-])(?P<value>{_DATE})(?![\w/-]|\.\d)")),
    ("counter", re.compile(rf"(?<!\w){_COUNTED}(?P<value>\d{{1,9}})(?!\w|[.,]\d)", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class VolatileValue:
    """The value that two texts first differ in, and both texts from a little before it on.

    ``alone``: but for values like it the texts are equal.
    """

    kind: VolatileKind
    before: str
    after: str
    alone: bool


def volatile_value(before: str, after: str) -> VolatileValue | None:
    """The volatile value at the first difference of two texts; None for any other difference.

    Both sides must have a value of one form at the same place, and a counter must have gone up: an
    edit by hand that is taken for one would get the wrong advice.
    """
    place = common_prefix(before, after)
    for kind, form in _FORMS:
        old, new = _at(form, before, place), _at(form, after, place)
        if old is None or new is None or old.start("value") != new.start("value"):
            continue
        if old["value"] == new["value"]:
            continue
        if kind == "counter" and int(old["value"]) >= int(new["value"]):
            continue
        start = max(0, old.start("value") - _LEAD)
        alone = _without_values(before) == _without_values(after)
        stop = start + _EXCERPT
        return VolatileValue(kind, before[start:stop], after[start:stop], alone)
    return None


def _at(form: re.Pattern[str], text: str, place: int) -> re.Match[str] | None:
    """The match whose value holds the character at ``place``, or ends there."""
    for match in form.finditer(text, max(0, place - _REACH), place + _REACH):
        if match.start("value") <= place <= match.end("value"):
            return match
    return None


def _without_values(text: str) -> str:
    for _, form in _FORMS:
        text = form.sub(_blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    start, stop = match.start("value") - match.start(), match.end("value") - match.start()
    return match[0][:start] + "\0" + match[0][stop:]
