"""Agent state and memory as a log of small diffs: plain JSON, no tensors, no pickle."""

from __future__ import annotations

from cachefriendly.state.agent import AgentState, FieldClass, field_class
from cachefriendly.state.codec import message_from_dict, message_to_dict
from cachefriendly.state.diff import DiffKind, StateDiff
from cachefriendly.state.log import StateLog
from cachefriendly.state.session_log import MemoryLog, SessionLog
from cachefriendly.state.sqlite_log import SqliteLog, session_names

__all__ = [
    "AgentState",
    "DiffKind",
    "FieldClass",
    "MemoryLog",
    "SessionLog",
    "SqliteLog",
    "StateDiff",
    "StateLog",
    "field_class",
    "message_from_dict",
    "message_to_dict",
    "session_names",
]
