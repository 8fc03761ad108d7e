"""Ten turns over documents: tokens prefilled per turn, here and by LlamaIndex's own chat engine.

A real index (MiniLM embeddings) over what Python says about its own modules, the demo model, the
same questions. LlamaIndex puts the nodes into the system message, so each turn begins anew; ours
puts them into the newest user message. The same LLM on both sides, theirs with reuse and without.

Predicted before the first run: a turn's nodes are some 300 tokens, system prompt and a turn's
question and answer 100 and 60. The tenth turn then prefills 360 tokens instead of 960, all ten
3,700 instead of 6,800: ratios of 2.6 and 1.8; limits 2 and 1.5. Ours keeps old nodes in the prompt,
so without reuse (``--law``) its ten turns prefill 20,000: the layout needs the cache to pay.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from typing import Any

from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.chat_engine import ContextChatEngine as StockContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer as StockChatMemoryBuffer
from llama_index.core.node_parser import SentenceSplitter
from record import keep, one_thread

from cachefriendly.demo import demo_engine
from cachefriendly_li import CacheFriendlyLLM, ContextChatEngine
from cachefriendly_li.demo_embedding import DemoEmbedding

LAST_LIMIT, TOTAL_LIMIT = 2.0, 1.5
MODULES = ("bisect", "calendar", "heapq", "shutil", "statistics", "textwrap")
SYSTEM = """\
You help people who learn Python. Each question comes with notes from Python's own documentation.
Answer from these notes, in one or two short sentences and in plain words. Name the function that
does the work, say what it takes and what it gives back, and do not write code unless you are asked
for it. When the notes do not hold the answer, say so instead of guessing. Never repeat the notes.
"""
QUESTIONS = (
    "Which function finds the middle value of some numbers?",
    "And what does it do when there is an even number of them?",
    "How do I compute the spread of the numbers?",
    "How can I keep a list sorted while I insert into it?",
    "What do I use to get the three largest items?",
    "Can several sorted inputs be merged into one?",
    "How do I copy a whole directory?",
    "How can I delete it again?",
    "How do I break a long text into lines?",
    "How can I tell whether a year is a leap year?",
)


def documents() -> list[Document]:
    """One for each public function of the modules: its name and its docstring."""
    found = []
    for name in MODULES:
        for function, value in inspect.getmembers(importlib.import_module(name), callable):
            text = inspect.getdoc(value)
            if text and not function.startswith("_") and value.__module__ in (name, f"_{name}"):
                found.append(Document(text=f"{name}.{function}: {text}"))
    return found


def talk(kind: type[Any], engine: Any, retriever: Any, new_tokens: int) -> dict[str, Any]:
    """Ten turns; prompt, prefilled and reused tokens of each, and the answers."""
    greedy = {"temperature": 0}
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=new_tokens, generate_kwargs=greedy)
    memory = {}
    if kind is StockContextChatEngine:
        memory["memory"] = StockChatMemoryBuffer.from_defaults(token_limit=6000)
    chat = kind.from_defaults(retriever, llm=llm, system_prompt=SYSTEM, **memory)
    engine.clear()
    first = len(engine.reports())
    answers = [chat.chat(question).response for question in QUESTIONS]
    reports = engine.reports()[first:]
    return {
        "prompt_tokens": [report.prompt_tokens for report in reports],
        "prefilled_tokens": [report.prefilled_tokens for report in reports],
        "prefilled_total": sum(report.prefilled_tokens for report in reports),
        "ttft_s": [round(report.ttft_s, 3) for report in reports],
        "ttft_total_s": round(sum(report.ttft_s for report in reports), 2),
        "answers": answers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--law", action="store_true", help="ours without reuse, too: minutes")
    options = parser.parse_args()
    new_tokens = options.new_tokens
    one_thread()
    Settings.embed_model = DemoEmbedding()
    texts = documents()
    splitter = SentenceSplitter(chunk_size=192, chunk_overlap=16)
    index = VectorStoreIndex.from_documents(texts, transformations=[splitter])
    retriever = index.as_retriever(similarity_top_k=2)
    warm, cold = demo_engine(), demo_engine(reuse=False)
    sides = {
        "ours": talk(ContextChatEngine, warm, retriever, new_tokens),
        "stock": talk(StockContextChatEngine, warm, retriever, new_tokens),
        "stock_without_reuse": talk(StockContextChatEngine, cold, retriever, new_tokens),
    }
    if options.law:
        sides["ours_without_reuse"] = talk(ContextChatEngine, cold, retriever, new_tokens)
    for name in [name for name in sides if name.endswith("_without_reuse")]:
        with_reuse = sides[name.removesuffix("_without_reuse")]
        if with_reuse["answers"] != sides[name].pop("answers"):
            raise SystemExit(f"{name}: the answers differ: nothing else matters")
    last = sides["stock"]["prefilled_tokens"][-1] / sides["ours"]["prefilled_tokens"][-1]
    total = sides["stock"]["prefilled_total"] / sides["ours"]["prefilled_total"]
    result = {
        "limits": {"last_turn": LAST_LIMIT, "ten_turns": TOTAL_LIMIT},
        "documents": len(texts),
        "stock_over_ours_last_turn": round(last, 2),
        "stock_over_ours_ten_turns": round(total, 2),
        "ttft_stock_over_ours": round(
            sides["stock"]["ttft_total_s"] / sides["ours"]["ttft_total_s"], 2
        ),
        **sides,
    }
    keep("rag", result, passed=last >= LAST_LIMIT and total >= TOTAL_LIMIT)


if __name__ == "__main__":
    main()
