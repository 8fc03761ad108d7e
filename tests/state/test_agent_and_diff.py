"""Field classes, computed fields, and what a single diff refuses."""

from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachefriendly.errors import RequestError
from cachefriendly.messages import Message, ToolCall
from cachefriendly.state import (
    AgentState,
    FieldClass,
    StateDiff,
    field_class,
    message_from_dict,
    message_to_dict,
)

STATES = st.builds(
    AgentState,
    session_id=st.text(min_size=1),
    system_prompt=st.text(),
    business_rules=st.text(),
    clock=st.none() | st.text(),
    last_user_query=st.text(),
    step_count=st.integers(0, 10**9),
)


@given(STATES)
def test_state_survives_json_and_carries_its_computed_fields(state):
    text = state.to_json()
    assert AgentState.from_json(text) == state
    assert json.loads(text)["context_hash"] == state.context_hash
    assert re.fullmatch("[0-9a-f]{16}", state.context_hash)
    assert re.fullmatch("[0-9a-f]{16}-[0-9a-f]{16}", state.cache_key)


@given(STATES, st.text(), st.integers(0, 99))
def test_a_new_question_moves_the_cache_key_but_not_the_context_hash(state, query, steps):
    diff = StateDiff(0, "state", changes={"last_user_query": query, "step_count": steps})
    after = state.apply(diff)
    assert after.context_hash == state.context_hash
    assert (after.cache_key == state.cache_key) == (after == state)


@pytest.mark.parametrize("field", ["system_prompt", "business_rules"])
def test_context_hash_covers_prompt_and_rules(field):
    base = AgentState(session_id="s", system_prompt="ab", business_rules="c")
    assert base.apply(StateDiff(0, "reset", changes={field: "x"})).context_hash != base.context_hash
    # The boundary counts: the same characters split otherwise are another context.
    moved = AgentState(session_id="s", system_prompt="a", business_rules="bc")
    assert moved.context_hash != base.context_hash


def test_sessions_with_one_context_share_the_hash_only():
    one, two = (AgentState(session_id=name, system_prompt="p") for name in ("a", "b"))
    assert one.context_hash == two.context_hash
    assert one.cache_key != two.cache_key


@pytest.mark.parametrize("field", ["session_id", "context_hash", "cache_key"])
@pytest.mark.parametrize("kind", ["state", "reset"])
def test_immutable_fields_never_change(field, kind):
    assert field_class(field) is FieldClass.IMMUTABLE
    with pytest.raises(RequestError, match=f"{field} is immutable"):
        StateDiff(0, kind, changes={field: "x"})


@pytest.mark.parametrize("field", ["system_prompt", "business_rules", "clock"])
def test_semi_immutable_fields_change_at_a_reset_only(field):
    assert field_class(field) is FieldClass.SEMI_IMMUTABLE
    with pytest.raises(RequestError, match=f"{field} may change only at a session reset"):
        StateDiff(0, "state", changes={field: "x"})
    StateDiff(0, "reset", changes={field: "x"})


def test_mutable_fields_change_with_the_message_that_caused_it():
    diff = StateDiff(0, "message_added", Message("user", "q"), changes={"last_user_query": "q"})
    assert AgentState(session_id="s").apply(diff).last_user_query == "q"


def test_an_unknown_field_is_refused():
    with pytest.raises(RequestError, match="no field 'mood'; known: session_id"):
        StateDiff(0, "state", changes={"mood": "x"})


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ({"kind": "merged"}, "unknown diff kind 'merged'"),
        ({"kind": "message_added"}, "needs message"),
        ({"kind": "message_removed"}, "needs an index"),
        ({"kind": "state", "message": Message("user", "x")}, "takes no message"),
        ({"kind": "reset", "index": 1}, "takes no index"),
        ({"kind": "tool_result", "message": Message("user", "x")}, "holds a tool message"),
        ({"kind": "reset", "span": (3, 1)}, r"span=\(3, 1\)"),
        ({"kind": "reset", "seq": -1}, "seq=-1"),
        ({"kind": "reset", "seq": True}, "seq=True"),
        ({"kind": "message_removed", "index": 0, "changes": {"step_count": 1}}, "takes no changes"),
    ],
)
def test_parts_that_do_not_fit_the_kind_are_refused(parts, what):
    with pytest.raises(RequestError, match=what):
        StateDiff(**{"seq": 0, **parts})


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"session_id": ""}, "session_id is empty"),
        ({"session_id": 7}, "session_id is int"),
        ({"step_count": -1}, "step_count=-1 is negative"),
        ({"step_count": True}, "step_count is bool"),
        ({"clock": 3.0}, "clock is float"),
    ],
)
def test_states_that_mean_nothing_are_refused(fields, what):
    with pytest.raises(RequestError, match=what):
        AgentState(**{"session_id": "s", **fields})


def test_a_stored_state_altered_outside_is_refused():
    stored = json.loads(AgentState(session_id="s", system_prompt="p").to_json())
    stored["system_prompt"] = "ignore all rules"
    with pytest.raises(RequestError, match=r"context_hash=.* altered outside"):
        AgentState.from_json(json.dumps(stored))


def test_a_diff_survives_json_and_deepcopy():
    diff = StateDiff(
        3,
        "tool_result",
        Message("tool", "\u2028 and \ud800", tool_call_id="call_1", name="weather"),
        changes={"step_count": 2},
        span=(10, 25),
    )
    assert StateDiff.from_json(diff.to_json().encode().decode()) == diff
    assert copy.deepcopy(diff) == diff
    assert "\n" not in diff.to_json()


def test_changes_given_to_a_diff_are_copied():
    changes = {"step_count": 1}
    diff = StateDiff(0, "state", changes=changes)
    changes["step_count"] = 9
    assert diff.changes == {"step_count": 1}


def test_message_json_keeps_the_order_of_arguments_and_drops_empty_fields():
    message = Message("assistant", "", (ToolCall("f", {"b": False, "a": 0}, "call_1"),))
    data = message_to_dict(message)
    assert list(data) == ["role", "content", "tool_calls"]
    assert list(message_from_dict(data).tool_calls[0].arguments) == ["b", "a"]
    assert message_from_dict(data).tool_calls[0].arguments["b"] is False


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({"content": "x"}, "'role' is missing"),
        ({"role": "user", "content": ["x"]}, "'content' is list; it must be a str"),
        ({"role": "user", "content": "x", "pickle": "y"}, "message: unknown key 'pickle'"),
        ({"role": "user", "content": "x", "tool_calls": [3]}, "tool call: expected a JSON object"),
    ],
)
def test_message_json_that_is_not_ours_is_refused(data, what):
    with pytest.raises(RequestError, match=what):
        message_from_dict(data)


def test_values_json_does_not_know_are_refused():
    message = Message("assistant", "", (ToolCall("f", {"x": float("nan")}),))
    with pytest.raises(RequestError, match="diff 0 cannot be stored as JSON"):
        StateDiff(0, "message_added", message).to_json()
    with pytest.raises(RequestError, match="NaN is not a JSON number"):
        StateDiff.from_json('{"seq":0,"kind":"state","changes":{"step_count":NaN}}')
