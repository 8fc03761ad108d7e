"""A small copy of an architecture: same code paths, random weights, windows of 8 tokens."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator

import torch
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from cachefriendly.engine.rope import lift_switches
from cachefriendly.engine.small_config import SMALL, Sizes, small_config
from cachefriendly.errors import UnsupportedModel

__all__ = ["LONG_ROW", "shrunken_copy"]

LONG_ROW = 37
LONGEST_ROW = 4096  # rows of a check are shorter, so that all of them have the same rope
MOST_PARAMETERS = 120_000_000  # 0.5 GB; three times what common models shrink to


def shrunken_copy(
    model: PreTrainedModel | PreTrainedConfig,
    model_class: type[PreTrainedModel] | None = None,
    *,
    sizes: Sizes = SMALL,
    seed: int = 0,
) -> PreTrainedModel:
    """The architecture with 2-4 layers covering every layer kind, in float32, eager, on the CPU.

    Weights are random and as large as they must be for a wrong cached token to be seen: at the
    usual 0.02 it often is not. Model, configuration and random state are left as they were.

    Args:
        model: a model, or a configuration together with ``model_class``.
        sizes: what the copy's windows, vocabulary and layers shall be.
        seed: of the weights.

    Raises:
        UnsupportedModel: no small copy of this architecture builds and runs.
    """
    if isinstance(model, PreTrainedConfig):
        config, built = model, model_class
    else:
        config, built = model.config, model_class or type(model)
    if built is None:
        raise TypeError("a configuration needs the model class to build")
    config = _for_class(config, built)
    failures = []
    for widths in (True, False):
        try:
            return _build(built, small_config(config, sizes, widths=widths), seed)
        except Exception as failure:  # whatever a model's own code raises on a size it dislikes
            failures.append(_said(failure))
    narrow, wide = failures
    both = narrow if narrow == wide else f"{narrow}; with layers of its own width: {wide}"
    raise UnsupportedModel(f"no small copy of {built.__name__} to check could be made: {both}")


def _for_class(config: PreTrainedConfig, built: type[PreTrainedModel]) -> PreTrainedConfig:
    """A text-only class is registered for some configurations that nest the text's."""
    text = config.get_text_config(decoder=True)
    wanted = getattr(built, "config_class", None)
    return text if type(text) is wanted and type(config) is not wanted else config


def _build(built: type[PreTrainedModel], config: PreTrainedConfig, seed: int) -> PreTrainedModel:
    """Build and run one row, so that sizes that do not fit together are found here."""
    with _quiet():
        with torch.device("meta"):
            weightless = built._from_config(copy.deepcopy(config), dtype=torch.float32)
        _refuse_large(weightless)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(seed)
            small: PreTrainedModel = built._from_config(
                config, attn_implementation="eager", dtype=torch.float32
            )
        small.eval()
        lift_switches(small, LONGEST_ROW)
        with torch.inference_mode():
            logits = small(input_ids=torch.arange(1, 13)[None], use_cache=False).logits
    if not bool(logits.isfinite().all()):
        raise UnsupportedModel("random weights give logits that are not finite")
    return small


def _refuse_large(weightless: PreTrainedModel) -> None:
    parameters = sum(p.numel() for p in weightless.parameters())
    if parameters > MOST_PARAMETERS:
        raise UnsupportedModel(
            f"the copy would have {parameters:,} parameters, more than {MOST_PARAMETERS:,}"
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Odd sizes make transformers warn; the user did not choose them."""
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)


def _said(failure: Exception) -> str:
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    text = " ".join(lines[:2])[:200]
    return text if isinstance(failure, UnsupportedModel) else f"{type(failure).__name__}: {text}"
