"""What the constructor and a call of an LLM may say, under LlamaIndex's names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from llama_index.core.base.llms.generic_utils import messages_to_prompt
from llama_index.core.llms.llm import default_completion_to_prompt
from llama_index.core.prompts import PromptTemplate

from cachefriendly.errors import ConfigError
from cachefriendly.options import check_kinds, refuse_unknown

__all__ = ["field_values", "name_of", "split_call"]

_log = logging.getLogger(__name__)

_Layer: TypeAlias = Mapping[str, Any]

# What a call may say besides generation parameters.
_CALL_OPTIONS: Final = frozenset(
    {
        "allow_parallel_tool_calls",
        "cache_namespace",
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
    refuse_unknown(values, known, error=ConfigError)
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
