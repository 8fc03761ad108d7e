"""Checks of an installation and of a model, as values: what was looked at, verdict, what to do."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cachefriendly.errors import CacheFriendlyError

__all__ = ["Check", "Verdict", "check_installation", "check_model"]

Verdict: TypeAlias = Literal["ok", "note", "fail"]

_REQUIRED = ("torch", "transformers", "accelerate", "safetensors")
_EXTRAS = {
    "langchain": ("langchain-core",),
    "agents": ("langchain", "langgraph", "langchain-classic"),
    "llamaindex": ("llama-index-core",),
    "grammar": ("llguidance",),
    "demo": ("gguf", "filelock", "rich"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. ``note`` is worth knowing, ``fail`` keeps something from working."""

    name: str
    verdict: Verdict
    found: str
    advice: str = ""


def check_installation() -> Iterator[Check]:
    """Versions of what is needed and of each extra, the demo model, threads."""
    yield Check("python", "ok", platform.python_version())
    for name in ("cachefriendly", *_REQUIRED):
        version = _version(name)
        advice = "" if version else f"pip install {name}"
        yield Check(name, "ok" if version else "fail", version or "not installed", advice)
    for extra, names in _EXTRAS.items():
        yield _check_extra(extra, names)
    yield _check_demo_model()
    yield _check_threads()


def check_model(model: str) -> Iterator[Check]:
    """Whether a model runs exactly, and how its template treats text and tools.

    Reads config and tokenizer only; the architecture is checked on a small random copy.

    Raises:
        OSError: transformers' own, when the path or hub id cannot be read.
    """
    from transformers import AutoTokenizer

    yield _check_exactness(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    fast = bool(tokenizer.is_fast)
    yield Check(
        "tokenizer",
        "ok" if fast else "note",
        f"{type(tokenizer).__name__}, {'fast' if fast else 'slow'}",
        "" if fast else "a slow tokenizer is used under a lock: calls wait for each other",
    )
    yield from _check_template(tokenizer)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _check_extra(extra: str, names: tuple[str, ...]) -> Check:
    versions = {name: _version(name) for name in names}
    found = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    if all(versions.values()):
        return Check(f"extra {extra}", "ok", found)
    return Check(f"extra {extra}", "note", found, f"pip install 'cachefriendly[{extra}]'")


def _check_demo_model() -> Check:
    from cachefriendly.demo import find_demo_model

    try:
        return Check("demo model", "ok", find_demo_model())
    except CacheFriendlyError as error:
        return Check("demo model", "note", "not installed", str(error))


def _check_threads() -> Check:
    import torch

    # A container may own fewer cores than the machine has; only Linux can say which.
    own = getattr(os, "sched_getaffinity", None)
    threads, cores = torch.get_num_threads(), len(own(0)) if own else os.cpu_count() or 1
    found = f"{threads} torch threads, {cores} cores"
    if threads > cores:
        advice = f"set OMP_NUM_THREADS={cores}: threads without a core wait for each other"
        return Check("threads", "note", found, advice)
    return Check("threads", "ok", found)


def _check_exactness(model: str) -> Check:
    from cachefriendly.engine.selfcheck import choose_runner
    from cachefriendly.size import weightless_model

    built = weightless_model(model)
    name = type(built).__name__
    try:
        choice = choose_runner(built)
    except CacheFriendlyError as error:
        return Check("architecture", "fail", name, str(error))
    if choice.kind == "fallback":
        found = f"{name} gives the logits of a cold run on the fallback runner, one row at a time"
        return Check(
            "architecture", "note", found, f"the packed runner refuses it: {choice.reason}"
        )
    return Check("architecture", "ok", f"{name} gives the logits of a cold run on a small copy")


def _check_template(tokenizer: Any) -> Iterator[Check]:
    from cachefriendly.tools.dialect import dialect_for

    template = tokenizer.chat_template
    if not isinstance(template, str):
        found = "none" if template is None else "several, by name"
        yield Check("chat template", "fail", found, "set tokenizer.chat_template to one template")
        return
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], return_dict=False)
    if set(ids) & {*tokenizer.added_tokens_decoder}:
        yield Check("chat template", "ok", "turns are marked by control tokens")
    else:
        advice = "untrusted text can forge turns; keep tool results of others away from it"
        yield Check("chat template", "note", "turns are marked by plain text", advice)
    knows = "knows tools" if "tools" in template else "knows no tools: stated in the system message"
    yield Check("tools", "ok", f"{dialect_for(template).name} dialect; the template {knows}")
