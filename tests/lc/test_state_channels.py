"""`DiffChannel`: a thread's value as writes and few full copies, and never a cut one unnoticed."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, NotRequired

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from cachefriendly.errors import StateError
from cachefriendly_lc.delta import DiffChannel, TurnsChannel, merge_turns

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class Talk(TypedDict):
    count: int
    turns: NotRequired[Annotated[dict[str, str], DiffChannel(merge_turns, snapshot_frequency=10)]]


def counting_graph(saver: InMemorySaver, schema: Any = Talk) -> Any:
    """Each run adds one turn, and passes a step that adds none."""
    graph = StateGraph(schema)
    graph.add_node("turn", lambda state: {"turns": {f"h{state['count']}": "x" * 10}})
    graph.add_node("idle", lambda state: {"count": state["count"]})
    graph.add_edge(START, "turn")
    graph.add_edge("turn", "idle")
    graph.add_edge("idle", END)
    return graph.compile(checkpointer=saver)


def copies(saver: InMemorySaver) -> list[int]:
    """Bytes of the stored full copies of ``turns``, in order."""
    found = sorted((key[3], blob) for key, blob in saver.blobs.items() if key[2] == "turns")
    return [len(data) for _, (kind, data) in found if kind != "empty"]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_full_copies_get_rarer_as_the_value_grows(durability: Any) -> None:
    saver = InMemorySaver()
    graph = counting_graph(saver)
    for count in range(45):
        graph.invoke({"count": count}, CONFIG, durability=durability)
    assert len(graph.get_state(CONFIG).values["turns"]) == 45
    first, *later = copies(saver)
    assert first < 100  # one turn: what every history leads back to
    assert len(later) == 3  # after 10, 20 and 40 turns
    assert all(1.8 < after / before < 2.1 for before, after in pairwise(later))


@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize("kept", [1, 4])
def test_a_cut_history_is_refused(durability: Any, kept: int) -> None:
    saver = InMemorySaver()
    graph = counting_graph(saver)
    for count in range(9):
        graph.invoke({"count": count}, CONFIG, durability=durability)
    before = graph.get_state(CONFIG).values["turns"]
    assert len(before) == 9
    checkpoints = saver.storage["t"][""]
    for old in sorted(checkpoints)[:-kept]:
        del checkpoints[old]
    with pytest.raises(StateError, match=r"channel 'turns': checkpoints .* are missing"):
        graph.get_state(CONFIG)
    with pytest.raises(StateError):
        graph.invoke({"count": 9}, CONFIG)


def test_values_that_can_be_done_without_are_what_is_left_of_a_cut_history() -> None:
    class Spare(TypedDict):
        count: int
        turns: NotRequired[TurnsChannel]

    saver = InMemorySaver()
    graph = counting_graph(saver, Spare)
    for count in range(9):
        graph.invoke({"count": count}, CONFIG)
    checkpoints = saver.storage["t"][""]
    for old in sorted(checkpoints)[:-7]:
        del checkpoints[old]
    left = graph.get_state(CONFIG).values["turns"]
    assert left.keys() < {f"h{count}" for count in range(9)}
    graph.invoke({"count": 9}, CONFIG)
    assert graph.get_state(CONFIG).values["turns"].keys() == {*left, "h9"}
    newest = sorted(checkpoints)[-3:]  # the first new turn stored a full copy
    for old in sorted(checkpoints.keys() - set(newest)):
        del checkpoints[old]
    assert graph.get_state(CONFIG).values["turns"].keys() == {*left, "h9"}


def test_a_history_cut_below_a_full_copy_is_whole() -> None:
    saver = InMemorySaver()
    graph = counting_graph(saver)
    for count in range(12):
        graph.invoke({"count": count}, CONFIG)
    before = graph.get_state(CONFIG).values["turns"]
    checkpoints = saver.storage["t"][""]
    for old in sorted(checkpoints)[:25]:
        del checkpoints[old]
    assert graph.get_state(CONFIG).values["turns"] == before


def test_writes_in_any_batches_give_the_same_turns() -> None:
    writes = [{"a": "1"}, {}, {"b": "2", "c": "3"}, {"a": "1"}]
    whole = merge_turns({}, writes)
    assert whole == {"a": "1", "b": "2", "c": "3"}
    for cut in range(len(writes) + 1):
        assert merge_turns(merge_turns({}, writes[:cut]), writes[cut:]) == whole


def test_one_field_may_be_named_by_several_schemas() -> None:
    class More(TypedDict):
        turns: NotRequired[TurnsChannel]
        other: NotRequired[Annotated[list[str], DiffChannel(_joined)]]

    class Same(TypedDict):
        turns: NotRequired[TurnsChannel]

    graph = StateGraph(Same, input_schema=More)
    graph.add_node("turn", lambda state: {"turns": {"h": "x"}, "other": Overwrite(["y"])})
    graph.add_edge(START, "turn")
    done = graph.compile().invoke({"other": ["a"]})
    assert done["turns"] == {"h": "x"}


def _joined(value: list[str], writes: Any) -> list[str]:
    return [*value, *(item for write in writes for item in write)]
