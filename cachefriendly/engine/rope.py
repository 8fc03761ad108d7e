"""Rotary embeddings that depend on the length of the whole sequence, held to one length at a time.

transformers takes the largest position of a forward for that length and keeps what it computed in
the module. So a row's keys would change with its neighbours, a chunk of a long prompt would get
the keys of a short one, and a longer prompt of somebody else's would stay behind.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cachefriendly.errors import UnsupportedModel

__all__ = ["RopeControl", "RopeRegimes", "length_dependent", "lift_switches", "rope_kinds"]


@dataclass(frozen=True, slots=True)
class RopeRegimes:
    """Which lengths share their keys.

    ``switches``: lengths up to which one set of frequencies holds, ascending (longrope has one).
    ``trained``: beyond this length every length has frequencies of its own (dynamic NTK).
    """

    switches: tuple[int, ...] = ()
    trained: int | None = None

    @classmethod
    def of(cls, model: nn.Module) -> RopeRegimes:
        """The regimes of a model, read from its rotary modules as they were built."""
        switches: set[int] = set()
        trained: list[int] = []
        for module in length_dependent(model):
            for kind, parameters in _kinds_of(module).values():
                if "dynamic" in kind:
                    trained.append(int(module.original_max_seq_len))
                else:
                    switches.add(int(parameters["original_max_position_embeddings"]))
        return cls(tuple(sorted(switches)), min(trained, default=None))

    @property
    def one(self) -> bool:
        """Every length has the same keys: nothing to look after."""
        return not self.switches and self.trained is None

    def regime(self, length: int) -> int:
        """Name of the regime of a sequence of ``length`` tokens; equal names share keys."""
        if not self.reusable(length):
            return length
        return sum(length > switch for switch in self.switches)

    def common_length(self, lengths: Iterable[int]) -> int:
        """One length whose keys are those of all ``lengths``.

        Raises:
            ValueError: they are of different regimes and cannot share a forward.
        """
        lengths = list(lengths)
        if not self.one and len({self.regime(length) for length in lengths}) > 1:
            raise ValueError(f"rows of {sorted(lengths)} tokens are of different rope regimes")
        return max(lengths)

    def reusable(self, length: int) -> bool:
        """Whether one token more finds the same keys."""
        return self.trained is None or length <= self.trained

    def keeps(self, regime: int) -> bool:
        """Whether keys of a regime are worth keeping: not those of one length alone."""
        return regime <= len(self.switches) or self.reusable(regime)


@dataclass(slots=True)
class _Step:
    length: int
    calls: int = 0


_STEP: ContextVar[_Step | None] = ContextVar("cachefriendly_rope_step", default=None)


class RopeControl:
    """Makes a model's rotary modules compute for the length we name, inside `length` only.

    Outside of it, and for other threads, the owner's modules run as they are; their state is
    never touched, because the engine computes on copies.
    """

    def __init__(self, model: nn.Module) -> None:
        self.regimes = RopeRegimes.of(model)
        self._modules = length_dependent(model)
        for module in self._modules:
            module.forward = _ForwardAtLength(module)

    def undo(self) -> None:
        """Give the modules their own forward back. Safe to repeat."""
        for module in self._modules:
            forward = module.__dict__.get("forward")
            if isinstance(forward, _ForwardAtLength):
                forward.remove_from(module)
        self._modules = []

    @contextmanager
    def length(self, tokens: int) -> Iterator[None]:
        """Forwards inside compute as for a sequence of ``tokens`` tokens.

        Raises:
            UnsupportedModel: no rotary module asked, so the keys are those of some other length.
        """
        if not self._modules:
            yield
            return
        step = _Step(tokens)
        token = _STEP.set(step)
        try:
            yield
        finally:
            _STEP.reset(token)
        if not step.calls:
            raise UnsupportedModel("the model's rotary modules were replaced while the engine ran")


class _ForwardAtLength:
    """Stands in for one rotary module's ``forward``."""

    def __init__(self, module: Any) -> None:
        self._own = "forward" in module.__dict__  # accelerate's hooks are instance attributes too
        self._theirs = module.forward
        self._copy = _private_copy(module)

    def __call__(
        self, x: Tensor, position_ids: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        step = _STEP.get()
        if step is None or position_ids is None:
            return self._theirs(x, position_ids, *args, **kwargs)
        step.calls += 1
        _reset(self._copy)
        # One position more, the sequence's last, makes the module see the whole length.
        last = position_ids.new_full((*position_ids.shape[:-1], 1), step.length - 1)
        positions = torch.cat([position_ids, last], -1)
        return _without_last(self._copy.forward(x, positions, *args, **kwargs))

    def remove_from(self, module: nn.Module) -> None:
        if self._own:
            module.forward = self._theirs
        else:
            del module.forward


def length_dependent(model: nn.Module) -> list[Any]:
    """The rotary modules whose frequencies or scale depend on the length of the sequence."""
    return [module for module in model.modules() if _kinds_of(module)]


def lift_switches(model: nn.Module, length: int) -> None:
    """Make keys equal up to ``length`` tokens: for a copy that is checked on rows of any length."""
    for module in length_dependent(model):
        module.original_max_seq_len = length
        module.max_seq_len_cached = module.original_max_seq_len
        rope = module.config.rope_parameters
        places = [rope[name] if name else rope for name in _kinds_of(module)]
        # The configuration's own field, where it has one, overwrites that of the parameters.
        for fields in (*places, vars(module.config)):
            if fields.get("original_max_position_embeddings") is not None:
                fields["original_max_position_embeddings"] = length


def rope_kinds(config: Any) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Rope type and parameters by layer type ("" where all layers share them), from a config."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    nested = {name: value for name, value in rope.items() if isinstance(value, Mapping)}
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, parameters in (nested or {"": rope}).items():
        kind = parameters.get("rope_type", parameters.get("type"))
        found[name] = (str(kind), {**_defaults(config), **parameters})
    return found


def _defaults(config: Any) -> dict[str, Any]:
    length = getattr(config, "original_max_position_embeddings", None)
    return {} if length is None else {"original_max_position_embeddings": length}


def _kinds_of(module: Any) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """A rotary module's length-dependent kinds by layer type; empty for every other module.

    The module's own ``rope_type`` decides: some configurations say "dynamic" for what is static.
    """
    kinds, config = getattr(module, "rope_type", None), getattr(module, "config", None)
    if kinds is None or config is None or not hasattr(module, "original_max_seq_len"):
        return {}
    given = rope_kinds(config)
    by_layer = kinds if isinstance(kinds, Mapping) else {"": kinds}
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for name, kind in by_layer.items():
        parameters = given.get(name, given.get("", ("", {})))[1]
        # PhiMoE scales cos and sin by a factor that changes at the switch, whatever the type.
        if "dynamic" in kind or kind == "longrope" or "long_mscale" in parameters:
            found[name] = (kind, parameters)
    return found


def _private_copy(module: Any) -> Any:
    """The module with buffers of its own and without anybody's hooks."""
    if any(buffer.is_meta for buffer in module.buffers(recurse=False)):
        return type(module)(module.config)  # offloaded: the frequencies come from the config
    mine = copy.copy(module)
    for name in ("forward", "_old_forward", "_hf_hook"):
        mine.__dict__.pop(name, None)
    mine._buffers = {
        name: held.clone()
        for name, held in module.named_buffers(recurse=False, remove_duplicate=False)
    }
    return mine


def _reset(module: Any) -> None:
    """As the module was built: what an earlier forward of another length left is gone."""
    module.max_seq_len_cached = module.original_max_seq_len
    for name in _kinds_of(module):
        prefix = f"{name}_" if name else ""
        # transformers 5.17 computes the long frequencies once, and fails where they are kept.
        vars(module).pop(f"{prefix}long_inv_freq", None)
        original = getattr(module, f"{prefix}original_inv_freq")
        setattr(module, f"{prefix}inv_freq", original.clone())
        if name:
            setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)


def _without_last(output: Any) -> Any:
    """Drop the added position of cos and sin [..., T + 1, d], or of one complex tensor."""
    if isinstance(output, Tensor):
        return output[..., :-1, :]
    return tuple(_without_last(tensor) for tensor in output)
