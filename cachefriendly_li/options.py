"""What the constructor and a call of an LLM may say, under LlamaIndex's names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from llama_index.core.base.llms.generic_utils import messages_to_prompt
from llama_index.core.llms.llm import default_completion_to_prompt
from llama_index.core.prompts import PromptTemplate

from cachefriendly.errors import ConfigError
from cachefriendly.options import GENERATION_NAMES, check_kinds, refuse_unknown

__all__ = ["field_values", "name_of", "refuse_loading", "split_call"]

_log = logging.getLogger(__name__)

_Layer: TypeAlias = Mapping[str, Any]

# What a call may say besides generation parameters.
_CALL_OPTIONS: Final = frozenset(
    {
        "allow_parallel_tool_calls",
        "cache_namespace",
        "raw_text",
        "response_schema",
        "session_id",
        "template_arguments",
        "tool_choice",
        "tool_required",
        "tools",
    }
)
_KINDS: Final[Mapping[str, type]] = {
    "cache_namespace": str,
    "generate_kwargs": Mapping,
    "response_schema": Mapping,
    "session_id": str,
    "template_arguments": Mapping,
    "tools": Iterable,
}
# Arguments of the constructor that are no fields.
_SOURCES: Final = frozenset({"engine", "engine_config", "model", "tokenizer"})
# How to load, and what stands there when nobody says anything.
_LOADING: Final[Mapping[str, Any]] = {
    "model": None,
    "tokenizer_name": None,
    "device_map": "auto",
    "model_kwargs": {},
    "tokenizer_kwargs": {},
}
# How LlamaIndex's own code is to treat the reply, not what is generated.
_IGNORED: Final = frozenset({"formatted", "verbose"})


def split_call(options: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[_Layer, _Layer]]:
    """Split keyword arguments of a call into call options and layers of generation parameters.

    Generation parameters go into ``generate_kwargs={...}`` or under their own names, which win.

    Raises:
        RequestError: an option is of another kind than it must be.
    """
    check_kinds(options, _KINDS)
    call = {name: value for name, value in options.items() if name in _CALL_OPTIONS}
    skip = _CALL_OPTIONS | _IGNORED | {"generate_kwargs"}
    named = {name: value for name, value in options.items() if name not in skip}
    return call, (options.get("generate_kwargs") or {}, named)


def field_values(known: Collection[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor arguments as field values; None means the default, except for a device map.

    Raises:
        ConfigError: an option is not known.
    """
    values = {k: v for k, v in options.items() if v is not None or k == "device_map"}
    # Extra outputs of a tokenizer never reach the model here.
    values.pop("tokenizer_outputs_to_remove", None)
    _refuse_unknown(values, known)
    if isinstance(values.get("query_wrapper_prompt"), str):
        values["query_wrapper_prompt"] = PromptTemplate(values["query_wrapper_prompt"])
    for name in ("messages_to_prompt", "completion_to_prompt"):
        if values.get(name) not in (None, messages_to_prompt, default_completion_to_prompt):
            _log.warning(
                "%s has no effect, it is never called: prompts are built by the model's chat "
                "template; leave it out, or set tokenizer.chat_template to change the prompt",
                name,
            )
    return values


def refuse_loading(values: Mapping[str, Any]) -> None:
    """An engine brings its model, so nothing beside it may say how to load one.

    Raises:
        ConfigError: an option for loading is given.
    """
    for name, default in _LOADING.items():
        value = values.get(name)
        if value not in (None, default):
            raise ConfigError(
                f"{name}={value!r} has no effect beside engine=, which brings its own model; "
                "leave one of them out"
            )


def _refuse_unknown(values: Collection[str], known: Collection[str]) -> None:
    generation = sorted((GENERATION_NAMES | {"do_sample"}) & set(values) - {"max_tokens"})
    if generation:
        raise ConfigError(
            f"unknown option {generation[0]!r}; generation options go into "
            f"generate_kwargs={{{generation[0]!r}: ...}}"
        )
    hint = (
        "generation options go into generate_kwargs={...}, "
        "options for loading into model_kwargs={...}"
    )
    refuse_unknown(values, _SOURCES | set(known), error=ConfigError, hint=hint)


def name_of(model_name: str | None, model: Any, engine: Any) -> str:
    """What the model of an LLM is called in reports.

    Raises:
        ConfigError: nothing says which model it is.
    """
    if not isinstance(model_name, str | None):
        raise ConfigError(
            f"model_name={model_name!r} is no name; give every other argument by its own name, "
            "such as context_window="
        )
    if engine is not None:
        return model_name or str(engine.model_name)
    if isinstance(model, str):
        return model
    if model is not None:
        return model_name or str(getattr(model, "name_or_path", "") or type(model).__name__)
    if model_name is None:
        raise ConfigError("no model; give engine=, model= and tokenizer=, or model_name=")
    return model_name
