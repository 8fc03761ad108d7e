"""A bounded map keeps what was used lately and says when it had to forget."""

from __future__ import annotations

from cachefriendly.bounded import BoundedMap


def test_the_entry_that_was_used_longest_ago_goes_first() -> None:
    entries: BoundedMap[str, int] = BoundedMap(2)
    assert entries.put("a", 1) is None
    assert entries.put("b", 2) is None
    assert entries.get("a") == 1
    assert not entries.forgot
    assert entries.put("c", 3) == 2
    assert entries.forgot
    assert ("a" in entries, "b" in entries, len(entries)) == (True, False, 2)


def test_a_key_that_is_set_again_is_one_entry() -> None:
    entries: BoundedMap[str, int] = BoundedMap(2)
    for value in (1, 2, 3):
        assert entries.put("a", value) is None
    assert (entries.get("a"), len(entries)) == (3, 1)


def test_entries_can_be_taken_out() -> None:
    entries: BoundedMap[str, int] = BoundedMap(3)
    for key, value in (("a", 1), ("b", 2), ("c", 3)):
        entries.put(key, value)
    assert entries.pop("a") == 1
    assert entries.pop("a") is None
    entries.drop(lambda key, value: value == 2)
    assert (entries.get("b"), entries.get("c"), entries.forgot) == (None, 3, False)
