"""Where two texts first differ in a value that changes by itself, and where they do not."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.prompt.volatile import volatile_value

TIMES = [
    ("12:00:01", "12:00:02"),
    ("9:59", "10:00"),
    ("9:05 AM", "12:10 pm"),
    ("12:00:01.123", "12:00:01.124"),
    ("2026-11-30T07:48:19.123Z", "2026-11-30T07:48:19.456Z"),
    ("2026-11-30 07:48:19+00:00", "2026-12-01 09:00:00+00:00"),
    ("30/11/2026 07:48", "30/11/2026 07:49"),
    ("Monday, November 30, 2026 at 7:48 AM", "Tuesday, December 1, 2026 at 8:00 AM"),
    ("20261130T074819Z", "20261130T074820Z"),
    ("1796024899", "1796024900"),
    ("1796024899123", "1796024899999"),
    ("1796024899.5", "1796024900.25"),
]
DATES = [
    ("2026-11-30", "2026-12-01"),
    ("30.11.2026", "01.12.2026"),
    ("11/30/26", "12/1/26"),
    ("Nov 30, 2026", "Dec 1, 2026"),
    ("30 November 2026", "1 December 2026"),
    ("Mon, 30 Nov 2026", "Tue, 1 Dec 2026"),
    ("November 30", "November 31"),
]
COUNTERS = [
    ("turn 9", "turn 10"),
    ("Step 3", "Step 4"),
    ("Message count: 12", "Message count: 14"),
    ("request #7", "request #8"),
    ("Call no. 7", "Call no. 8"),
]
IDS = [(str(uuid.UUID(int=7 << 100)), str(uuid.UUID(int=8 << 100)))]
PAIRS = [
    (kind, *pair)
    for kind, pairs in {"time": TIMES, "date": DATES, "counter": COUNTERS, "uuid": IDS}.items()
    for pair in pairs
]


@pytest.mark.parametrize(("kind", "before", "after"), PAIRS)
@pytest.mark.parametrize("around", ["{}", "Now: {}. Be brief.", "<now>{}</now>", "a\n{}\nb"])
def test_values_that_change_by_themselves(kind, before, after, around):
    found = volatile_value(around.format(before), around.format(after))
    assert found is not None
    assert (found.kind, found.alone) == (kind, True)
    assert before in found.before
    assert after in found.after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Be brief.", "Be verbose."),
        ("Answer in 20 words.", "Answer in 25 words."),
        ("You are version 1.2.3.", "You are version 1.2.4."),
        ("Listen on 10.0.0.1.", "Listen on 10.0.0.2."),
        ("Keep the last 12 messages.", "Keep the last 14 messages."),
        ("A picture of 16:9.", "A picture of 4:3."),
        ("Market 5 is open.", "Market 6 is open."),
        ("Call +49 731 1234567.", "Call +49 731 1234568."),
        ("Today is 2026-11-30.", "Today is 2026-11-30, a Monday."),
        ("It is 12:00.", "It is late."),
        ("", "It is 12:00."),
        ("The build is 5f2d0b1e.", "The build is 5f2d0b1f."),
        ("The date 2026-11-30 is past.", "The file 2026-11-30 is past."),
    ],
)
def test_an_edit_by_hand_is_none(before, after):
    assert volatile_value(before, after) is None
    assert volatile_value(after, before) is None


def test_a_counter_goes_up():
    assert volatile_value("step 3 comes first", "step 4 comes first") is not None
    assert volatile_value("step 4 comes first", "step 3 comes first") is None


def test_what_else_changed_is_said():
    found = volatile_value("It is 12:00. Be brief.", "It is 12:01. Be verbose.")
    assert found is not None
    assert not found.alone


def test_a_long_text_is_shown_around_the_value():
    head, tail = "word " * 1000, " more" * 1000
    found = volatile_value(f"{head}It is 12:00.{tail}", f"{head}It is 12:01.{tail}")
    assert found is not None
    assert found.before.index("12:00") == found.after.index("12:01") == 40
    assert len(found.before) == 200


VALUE = st.one_of(
    st.datetimes().map(str),
    st.dates().map(str),
    st.times().map(str),
    st.uuids().map(str),
    st.integers(0, 10**9 - 1).map("turn {}".format),
    st.text("ab 1:-.\n", max_size=4),
)


@given(VALUE, VALUE, st.text("a \n1", max_size=5), st.text("a \n1", max_size=5))
def test_equal_texts_have_none_and_no_text_is_too_odd(before, after, head, tail):
    assert volatile_value(head + before, head + before) is None
    found = volatile_value(head + before + tail, head + after + tail)
    assert found is None or found.before != found.after
