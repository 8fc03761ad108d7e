"""A whole engine call against bare forwards of the same token counts.

Bare: transformers' forward with sdpa and ``DynamicCache``: one prefill, then single tokens, argmax
by hand, nothing else. Engine: ``engine.chat`` with rendering, tokenizing, the thread, sampling,
decoding, parsing and the transcript. Both cold, 32 new tokens, one thread.

Prediction before the first run: 2-4 % more at short prompts (Python per layer and row), less than
bare at long ones, because ``DynamicCache`` copies the whole cache for every token.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from record import alternate, keep, median_ratios, one_thread
from transformers import DynamicCache

from cachefriendly import ChatRequest, Message, Sampling
from cachefriendly.compat_transformers import cache_argument
from cachefriendly.demo import demo_engine, load_demo_model
from cachefriendly.engine.engine import Engine

NEW_TOKENS = 32
LIMIT = 1.05
WORDS = "the quick brown fox jumps over the lazy dog while the sun sets behind the hills "


def bare(model: Any, prompt: list[int]) -> None:
    cache = DynamicCache()
    name = cache_argument(model)
    with torch.inference_mode():
        ids = torch.tensor([prompt])
        for _ in range(NEW_TOKENS):
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1, **{name: cache})
            ids = out.logits[:, -1].argmax(-1, keepdim=True)


def ask(engine: Engine, request: ChatRequest) -> None:
    engine.chat(request).result()


def request_of(words: int) -> ChatRequest:
    text = (WORDS * (words // 15 + 1))[: words * 5]
    sampling = Sampling(max_tokens=NEW_TOKENS, temperature=0, extra={"min_new_tokens": NEW_TOKENS})
    return ChatRequest((Message("user", text),), sampling=sampling)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    one_thread()
    model, _ = load_demo_model()
    model.set_attn_implementation("sdpa")
    engine = demo_engine(reuse=False)
    rows = []
    for words in (50, 500, 2000):
        request = request_of(words)
        prompt = list(engine.chat(request).result().prompt_ids)
        bare(model, prompt)
        times = alternate(
            {
                "engine": partial(ask, engine, request),
                "bare": partial(bare, model, prompt),
            },
            rounds=rounds,
        )
        rows.append(
            {
                "prompt_tokens": len(prompt),
                "new_tokens": NEW_TOKENS,
                "engine_s": min(w for w, _ in times["engine"]),
                "bare_s": min(w for w, _ in times["bare"]),
                **median_ratios(times["engine"], times["bare"]),
            }
        )
    passed = all(row["wall_ratio"] <= LIMIT for row in rows)
    keep("call_overhead", {"limit": LIMIT, "rounds": rounds, "rows": rows}, passed=passed)


if __name__ == "__main__":
    main()
