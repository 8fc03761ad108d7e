"""The engine's errors as LangChain's: each is both, so code that catches either goes on working.

Middlewares decide by LangChain's classes what is retried, and a summarizer what is cut shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core import exceptions

from cachefriendly import errors

__all__ = [
    "Cancelled",
    "ContextOverflow",
    "ControlTokenError",
    "EngineClosed",
    "RequestError",
    "RowFailed",
    "SchemaError",
    "TemplateError",
    "Timeout",
    "UnsupportedModel",
    "as_langchain",
]

if TYPE_CHECKING:
    _Full: TypeAlias = Exception
    _Model: TypeAlias = Exception
    _Refused: TypeAlias = Exception
    _Failed: TypeAlias = Exception
    _Late: TypeAlias = Exception
else:
    # langchain-core has the tree of model errors from 1.6 on; before, only the overflow.
    _Full = exceptions.ContextOverflowError
    _Model = getattr(exceptions, "ModelError", exceptions.LangChainException)
    _Refused = getattr(exceptions, "ModelInvalidRequestError", _Model)
    _Failed = getattr(exceptions, "ModelAPIError", _Model)
    _Late = getattr(exceptions, "ModelTimeoutError", _Model)


class RequestError(errors.RequestError, _Refused):
    """Not retried: the same request is refused again."""


class ContextOverflow(errors.ContextOverflow, _Full):
    """Not retried as it is: LangChain's summarizer tries a shorter text."""


class ControlTokenError(errors.ControlTokenError, _Refused):
    """Not retried."""


class TemplateError(errors.TemplateError, _Refused):
    """Not retried."""


class SchemaError(errors.SchemaError, _Refused):
    """Not retried."""


class UnsupportedModel(errors.UnsupportedModel, _Model):
    """Not retried."""


class EngineClosed(errors.EngineClosed, _Model):
    """Not retried: a closed engine stays closed."""


class Cancelled(errors.Cancelled, _Model):
    """Not retried: somebody wanted it to end."""


class RowFailed(errors.RowFailed, _Failed):
    """Retried: memory may be free again, another sample may fare better."""


class Timeout(TimeoutError, _Late):
    """Retried: what was forwarded in time is held."""


_BOTH: dict[type[Exception], type[Exception]] = {
    errors.RequestError: RequestError,
    errors.ContextOverflow: ContextOverflow,
    errors.ControlTokenError: ControlTokenError,
    errors.TemplateError: TemplateError,
    errors.SchemaError: SchemaError,
    errors.UnsupportedModel: UnsupportedModel,
    errors.EngineClosed: EngineClosed,
    errors.Cancelled: Cancelled,
    errors.RowFailed: RowFailed,
    TimeoutError: Timeout,
}


@contextmanager
def as_langchain() -> Iterator[None]:
    """Errors that leave the block are LangChain's, too; their text and cause stay."""
    try:
        yield
    except Exception as error:
        both: Any = _BOTH.get(type(error))
        if both is None:
            raise
        raise both(*error.args).with_traceback(error.__traceback__) from error.__cause__
