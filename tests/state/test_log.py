"""The log against a plain list: the fold of the diffs is what a list would hold."""

from __future__ import annotations

import copy
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.errors import RequestError
from cachefriendly.messages import InvalidToolCall, Message, ToolCall
from cachefriendly.state import AgentState, StateDiff, StateLog

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
CALLS = st.builds(ToolCall, st.text(), st.dictionaries(st.text(), JSON, max_size=3), st.text())
BROKEN = st.builds(InvalidToolCall, st.text(), st.text(), st.none() | st.text(), st.text())
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.text(),
    st.lists(CALLS, max_size=2).map(tuple),
    st.lists(BROKEN, max_size=1).map(tuple),
    st.none() | st.text(),
    st.none() | st.text(),
    st.none() | st.text(),
    st.none() | st.text(),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "edit", "remove", "summarize", "clear", "update"]),
        st.integers(0, 20),
        MESSAGES,
    ),
    max_size=12,
)


def play(log: StateLog, oracle: list[Message], step: tuple[str, int, Message]) -> None:
    """Do one step on the log and on the plain list."""
    name, number, message = step
    if name in ("edit", "remove") and not oracle:
        return
    if name == "add":
        log.add_message(message)
        oracle.append(message)
    elif name == "edit":
        log.edit_message(number % len(oracle), message)
        oracle[number % len(oracle)] = message
    elif name == "remove":
        log.remove_message(number % len(oracle))
        oracle.pop(number % len(oracle))
    elif name == "summarize":
        count = number % (len(oracle) + 1)
        log.summarize(count, message)
        oracle[:count] = [message]
    elif name == "clear":
        log.clear(system_prompt=message.content)
        oracle.clear()
    else:
        log.update(step_count=number, last_user_query=message.content)


@given(STEPS)
def test_fold_of_diffs_is_the_plain_list_at_every_point(steps):
    log, oracle = StateLog(AgentState(session_id="s")), []
    history, states = [()], [log.state]
    for step in steps:
        before = len(log)
        play(log, oracle, step)
        assert log.messages == tuple(oracle)
        if len(log) > before:
            history.append(tuple(oracle))
            states.append(log.state)
    for seq, (messages, state) in enumerate(zip(history, states, strict=True), start=-1):
        assert log.at(seq) == messages
        assert log.state_at(seq) == state


@given(STEPS, st.integers(0, 12))
def test_json_lines_round_trip_whole_and_in_two_parts(steps, cut):
    log = StateLog(AgentState(session_id="s"))
    oracle: list[Message] = []
    for step in steps[:cut]:
        play(log, oracle, step)
    first, held = log.to_json_lines(), len(log)
    for step in steps[cut:]:
        play(log, oracle, step)
    assert StateLog.from_json_lines(log.to_json_lines()) == log
    rest = log.to_json_lines(since=held) if held else log.to_json_lines().split("\n", 1)[1]
    again = StateLog.from_json_lines((first + rest).encode().decode())
    assert again == log
    assert again.messages == tuple(oracle)
    assert again.state == log.state


def test_bytes_per_turn_do_not_grow_with_the_history():
    log = StateLog(AgentState(session_id="s"))
    sizes = []
    for turn in range(100, 300):
        held = len(log)
        log.add_message(Message("user", f"question {turn}"))
        log.add_message(Message("assistant", f"answer {turn}" * 20))
        log.update(step_count=turn, last_user_query=f"question {turn}")
        sizes.append(len(log.to_json_lines(since=held or 0)) if held else 0)
    # Sequence numbers gain a digit at 10 and at 100: at most one byte for each of three diffs.
    assert max(sizes[1:]) - min(sizes[1:]) <= 6
    assert len(log.to_json_lines()) < 210 * max(sizes)


def test_a_log_costs_at_least_87_percent_less_than_snapshots_of_100_turns():
    log, snapshots = StateLog(), 0
    for _ in range(100):
        log.add_message(Message("user", "x" * 100))
        snapshots += len(log.to_json_lines())
    assert len(log.to_json_lines()) < 0.13 * snapshots


def test_a_diff_out_of_order_is_refused_and_changes_nothing():
    log = StateLog()
    log.add_message(Message("user", "a"))
    with pytest.raises(RequestError, match="diff 5 does not follow: the next is 1"):
        log.append(StateDiff(5, "message_added", Message("user", "b")))
    assert log.messages == (Message("user", "a"),)


@pytest.mark.parametrize("index", [-1, 1, 99])
def test_an_index_outside_is_refused_and_changes_nothing(index):
    log = StateLog(AgentState(session_id="s"))
    log.add_message(Message("user", "a"))
    with pytest.raises(RequestError, match=f"index {index} is outside the 1 messages"):
        log.remove_message(index)
    assert len(log) == 1


def test_a_change_of_the_wrong_type_is_refused_and_changes_nothing():
    log = StateLog(AgentState(session_id="s"))
    log.add_message(Message("user", "a"))
    with pytest.raises(RequestError, match="step_count is str"):
        log.clear(step_count="many")
    assert log.messages == (Message("user", "a"),)


def test_a_log_without_state_keeps_messages_only():
    log = StateLog()
    with pytest.raises(RequestError, match="no AgentState to change"):
        log.update(step_count=1)
    assert log.state is None
    assert StateLog.from_json_lines(log.to_json_lines()) == log


def test_only_a_reset_changes_the_system_prompt_and_with_it_the_context_hash():
    log = StateLog(AgentState(session_id="s", system_prompt="old"))
    before = log.state.context_hash
    with pytest.raises(RequestError, match="system_prompt may change only at a session reset"):
        log.update(system_prompt="new")
    log.clear(system_prompt="new")
    assert log.state.system_prompt == "new"
    assert log.state.context_hash != before
    assert log.state_at(-1).context_hash == before


@pytest.mark.parametrize("seq", [-2, 1, 7])
def test_time_travel_outside_the_log_is_refused(seq):
    log = StateLog()
    log.add_message(Message("user", "a"))
    with pytest.raises(RequestError, match=f"no diff {seq}; the log holds 1"):
        log.at(seq)


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda text: text[:-10], "line 3: diff is not JSON"),
        (lambda text: text.replace("log/1", "log/9"), "line 1: not a cachefriendly-log/1 log"),
        (lambda text: text.replace('"seq":1', '"seq":0'), "line 3: diff 0 does not follow"),
        (lambda text: text.replace('"seq":1', '"seq":1,"x":1'), "line 3: diff: unknown key 'x'"),
        (lambda text: text.replace("user", "root"), "line 2: message: unknown role 'root'"),
        (lambda text: "", "line 1 is not JSON"),
    ],
)
def test_a_damaged_log_is_refused_by_line(damage, what):
    log = StateLog()
    log.add_message(Message("user", "a"))
    log.add_message(Message("assistant", "b"))
    with pytest.raises(RequestError, match=what):
        StateLog.from_json_lines(damage(log.to_json_lines()))


def test_copies_are_independent():
    log = StateLog()
    log.add_message(Message("user", "a"))
    for twin in (log.copy(), copy.deepcopy(log)):
        twin.add_message(Message("user", "b"))
        assert len(log) == 1
        assert len(twin) == 2


def test_writers_in_many_threads_lose_nothing():
    log = StateLog()

    def write(name: int) -> None:
        for number in range(200):
            log.add_message(Message("user", f"{name}-{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [diff.seq for diff in log.diffs] == list(range(800))
    assert len({message.content for message in log.messages}) == 800


def test_archived_messages_leave_the_conversation_and_stay_readable() -> None:
    log = StateLog()
    for number in range(4):
        log.add_message(Message("user", str(number)), extra={"note": number})
    log.edit_message(2, Message("user", "two"))
    for index in (2, 0):
        log.archive_message(index)
    assert [message.content for message in log.messages] == ["1", "3"]
    assert [entry.message.content for entry in log.archived if entry.message] == ["0", "two"]
    again = StateLog.from_json_lines(log.to_json_lines())
    assert (again.archived, again.entries) == (log.archived, log.entries)
    assert log.copy().archived == log.archived
    log.clear()
    assert log.archived == ()
    with pytest.raises(RequestError, match="index 0 is outside"):
        log.archive_message(0)


def test_a_note_belongs_to_a_message_and_is_no_part_of_it() -> None:
    log = StateLog()
    log.add_message(Message("user", "a"), extra={"x": 1})
    log.add_message(Message("assistant", "b"))
    log.note(1, {"seen": [True, None]})
    assert [dict(entry.extra) for entry in log.entries] == [{"x": 1}, {"seen": [True, None]}]
    assert log.messages == (Message("user", "a"), Message("assistant", "b"))
    log.edit_message(0, Message("user", "c"))
    assert log.entries[0].extra == {}
    assert log.entries[0].seq == 0
    assert StateLog.from_json_lines(log.to_json_lines()) == log
    with pytest.raises(RequestError, match="takes no extra"):
        StateDiff(0, "reset", extra={"x": 1})
