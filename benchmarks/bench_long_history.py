"""What a call costs besides the model when the history has 10,000 messages: by ratios, no model.

A prompt is built behind 100, 1,000 and 10,000 old messages, whole, and cut for a window of 8,000
tokens. Predicted from 2.4 ms for rendering 36,000 tokens: three renderings of 220,000 tokens take
45 ms and 10,000 digests 50 ms, so 10 us per old message, and as much at 10,000 as at 1,000 (ratio
1, limit 1.5); cut, the renderings go and the digests stay: half the time, limit 0.8.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from record import keep, one_thread

from cachefriendly import ChatRequest, Message
from cachefriendly.prompt import PromptBuilder
from cachefriendly.prompt.overflow import ContextWindow
from cachefriendly.testing import byte_tokenizer

SIZES = (100, 1000, 10_000)
ROUNDS = 5
GROWTH_LIMIT, CUT_LIMIT = 1.5, 0.8


def history(prompts: PromptBuilder, size: int) -> ChatRequest:
    """``size`` old messages, a recorded reply, and the next question."""
    roles = ("user", "assistant")
    old = [Message(roles[n % 2], f"message number {n}") for n in range(size)]  # type: ignore[arg-type]
    old.append(Message("user", "ready?"))
    reply = Message("assistant", "yes")
    built = prompts.build(ChatRequest(tuple(old)))
    prompts.commit(built, prompts.encode_text("yes"), reply)
    return ChatRequest((*old, reply, Message("user", "and now?")))


def fastest(action: Callable[[], Any]) -> float:
    """CPU seconds: others may be using the machine."""
    times = []
    for _ in range(ROUNDS):
        started = time.process_time()
        action()
        times.append(time.process_time() - started)
    return min(times)


def seconds(size: int, window: ContextWindow | None) -> float:
    prompts = PromptBuilder(byte_tokenizer(), window=window)
    request = history(prompts, size)
    return fastest(lambda: prompts.build(request))


def main() -> None:
    one_thread()
    window = ContextWindow("drop_oldest", tokens=8000, reply_room=500)
    whole = {size: seconds(size, None) for size in SIZES}
    cut = {size: seconds(size, window) for size in SIZES}
    per_message = {size: round(1e6 * spent / size, 1) for size, spent in whole.items()}
    growth = (whole[10_000] / 10_000) / (whole[1000] / 1000)
    ratio = cut[10_000] / whole[10_000]
    result = {
        "limits": {"growth_per_message": GROWTH_LIMIT, "cut_over_whole": CUT_LIMIT},
        "growth_per_message": round(growth, 2),
        "cut_over_whole": round(ratio, 2),
        "whole_us_per_message": per_message,
        "cut_ms": {size: round(1e3 * spent, 1) for size, spent in cut.items()},
    }
    keep("long_history", result, passed=growth <= GROWTH_LIMIT and ratio <= CUT_LIMIT)


if __name__ == "__main__":
    main()
