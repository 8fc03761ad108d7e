"""Documents that are found by a word in the question, and the four ways to ask a chat engine."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

__all__ = ["FORMS", "WordRetriever", "ask", "found"]

FORMS = ["chat", "achat", "stream", "astream"]

DOCUMENTS = {
    "pool": "The pool is on the roof. {query_str} {context_str}",
    "breakfast": "Breakfast starts at 7 am.",
    "tram": "The tram leaves every ten minutes.",
}


class WordRetriever(BaseRetriever):
    """Finds the documents whose word is in the question; remembers what it was asked."""

    def __init__(self, documents: dict[str, str] | None = None) -> None:
        super().__init__()
        self._documents = DOCUMENTS if documents is None else documents
        self.asked: list[str] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        self.asked.append(question)
        if "explode" in question:
            raise LookupError("the index is gone")
        return found(*(text for word, text in self._documents.items() if word in question))


def found(*texts: str) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text), score=0.5) for text in texts]


async def ask(engine: Any, form: str, question: Any, **options: Any) -> Any:
    """The response after its stream, if it has one, was read to the end."""
    if form == "chat":
        return engine.chat(question, **options)
    if form == "achat":
        return await engine.achat(question, **options)
    if form == "stream":
        response = engine.stream_chat(question, **options)
        assert "".join(response.response_gen).strip() == str(response)
        return response
    response = await engine.astream_chat(question, **options)
    read = [delta async for delta in response.async_response_gen()]
    assert "".join(read).strip() == str(response)
    return response
