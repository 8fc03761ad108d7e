"""Every error a user can meet, in one tree.

::

    CacheFriendlyError
    ├── RequestError (ValueError)         the caller's input; nothing was computed
    │   ├── ContextOverflow               prompt + new tokens exceed the context window
    │   ├── ControlTokenError             untrusted text could not be made harmless
    │   ├── TemplateError                 the chat template is missing or refuses the messages
    │   └── SchemaError                   a tool or response schema is not usable JSON Schema
    ├── ConfigError (ValueError)          an option is unknown or out of range
    ├── UnsupportedModel                  the architecture cannot run exactly; says why
    ├── EngineClosed                      the engine was closed, or the process forked
    ├── Cancelled                         the call was cancelled before it finished
    ├── RowFailed                         one call failed while it ran; others were not touched
    ├── StateError                        stored state cannot be read back whole, or not written
    └── MissingExtra (ImportError)        an optional dependency; names the pip command

A message names the value, the limit and the way out.
"""

from __future__ import annotations

__all__ = [
    "CacheFriendlyError",
    "Cancelled",
    "ConfigError",
    "ContextOverflow",
    "ControlTokenError",
    "EngineClosed",
    "MissingExtra",
    "RequestError",
    "RowFailed",
    "SchemaError",
    "StateError",
    "TemplateError",
    "UnsupportedModel",
]


class CacheFriendlyError(Exception):
    """Base of every error raised on purpose by cachefriendly."""


class RequestError(CacheFriendlyError, ValueError):
    """The request itself cannot be served; nothing was computed."""


class ContextOverflow(RequestError):
    """The prompt, or the prompt plus the room asked for, exceeds the context window."""


class ControlTokenError(RequestError):
    """Text holds a control token that this template prints in a form that cannot be neutralised."""


class TemplateError(RequestError):
    """The tokenizer has no chat template, or the template refuses these messages."""


class SchemaError(RequestError):
    """A tool or response schema is not JSON Schema, or cannot be turned into a grammar."""


class ConfigError(CacheFriendlyError, ValueError):
    """An engine option is unknown, of the wrong type or out of range."""


class UnsupportedModel(CacheFriendlyError):
    """The architecture does not run exactly on this runner; the message says which check failed."""


class EngineClosed(CacheFriendlyError, RuntimeError):
    """The engine was closed, its thread died, or the process was forked after it started."""


class Cancelled(CacheFriendlyError):
    """The call was cancelled before it finished."""


class RowFailed(CacheFriendlyError, RuntimeError):
    """One row failed inside the engine (processor, grammar, NaN logits); other rows went on."""


class StateError(CacheFriendlyError):
    """Stored messages or state cannot be read back whole, or not be written; nothing changed."""


class MissingExtra(CacheFriendlyError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package!r} is not installed; run: pip install 'cachefriendly[{extra}]'")
