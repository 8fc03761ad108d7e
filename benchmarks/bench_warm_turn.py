"""Time to first token of a turn that adds 50 tokens to 4,000: warm against ``reuse=False``.

The same code, the same prompt, the same output; only what is held differs.

Prediction before the first run: 4,050 tokens prefilled against about 60, with attention over the
past on both sides: 40-60 times.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from record import keep, one_thread

from cachefriendly import ChatRequest, Message, Sampling
from cachefriendly.demo import demo_engine

HISTORY_TOKENS = 4000
NEW_TOKENS = 50
LIMIT = 20
SENTENCE = "The ship left the harbour at dawn and the crew sang while the wind filled the sails. "


def history(engine: Any) -> tuple[Message, ...]:
    """A conversation of HISTORY_TOKENS tokens, to within a token or two."""
    turns: list[Message] = []
    while True:
        longer = [*turns, Message("user", SENTENCE * 8), Message("assistant", "Noted.")]
        if _tokens(engine, longer) > HISTORY_TOKENS:
            break
        turns = longer
    user = turns[-2]
    while _tokens(engine, turns) < HISTORY_TOKENS - 1:
        user = Message("user", user.content + " and")
        turns[-2] = user
    return tuple(turns)


def _tokens(engine: Any, turns: list[Message]) -> int:
    return int(engine.count_message_tokens(ChatRequest(tuple(turns))))


def question(engine: Any, number: int) -> Message:
    """A user message that adds close to NEW_TOKENS tokens with its turn."""
    text = f"Question {number}: "
    while engine.count_tokens(text) < NEW_TOKENS - 12:
        text += "and what happened to the captain then? "
    return Message("user", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    one_thread()
    warm, cold = demo_engine(), demo_engine(reuse=False)
    past = history(warm)
    sampling = Sampling(max_tokens=2, temperature=0)
    warm.prefill(ChatRequest(past, sampling=sampling)).result()
    rows = []
    for number in range(rounds):
        request = ChatRequest((*past, question(warm, number)), sampling=sampling)
        hot = warm.chat(request).result()
        full = cold.chat(request).result()
        if hot.output_ids != full.output_ids or hot.prompt_ids != full.prompt_ids:
            raise SystemExit("the outputs differ: nothing else matters")
        rows.append(
            {
                "prompt_tokens": hot.report.prompt_tokens,
                "prefilled_warm": hot.report.prefilled_tokens,
                "prefilled_cold": full.report.prefilled_tokens,
                "ttft_warm_s": hot.report.ttft_s,
                "ttft_cold_s": full.report.ttft_s,
                "ratio": full.report.ttft_s / hot.report.ttft_s,
            }
        )
    ratio = statistics.median(row["ratio"] for row in rows)
    result = {"limit": LIMIT, "ratio": round(ratio, 1), "rounds": rounds, "rows": rows}
    keep("warm_turn", result, passed=ratio >= LIMIT)


if __name__ == "__main__":
    main()
