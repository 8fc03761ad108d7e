"""Two 300 ms tools in one message of a LlamaIndex agent: how much of the model's time they use.

The same `FunctionAgent` on the demo model with and without ``early_tools``. 135M parameters do not
make two calls unforced, so the ids of the replies are scripted; every forward is real. Without
``early_tools`` the tools start when the turn is over. With them they start when their arguments
are written: at best all the time between the last closed call and the end of the turn is saved, or
the tools' own time where that is less.

Compared is how long the agent waits between the end of that turn and its next question to the
model: how fast the model writes (and who else uses the machine) does not enter. Seconds of whole
runs stand beside.

Prediction before the first run: 95 % of it, as with LangChain's agents.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from llama_index.core.agent.workflow import AgentInput, AgentOutput, AgentStream
from record import keep, one_thread, share_of_window

from cachefriendly import Engine
from cachefriendly.demo import demo_engine
from cachefriendly.testing import scripted_replies
from cachefriendly_li import CacheFriendlyLLM, FunctionAgent

LIMIT = 0.8
TOOLS, TOOL_SECONDS = 2, 0.3
CALL = '<tool_call>\n{{"name": "{}", "arguments": {{"city": "Paris"}}}}\n</tool_call>\n'
ASKED = CALL.format("weather") + CALL.format("population") + "I look both up."
ANSWERED = "Paris is sunny."


def weather(city: str) -> str:
    """The weather in a city."""
    time.sleep(TOOL_SECONDS)
    return f"It is sunny in {city}."


def population(city: str) -> str:
    """How many people live in a city."""
    time.sleep(TOOL_SECONDS)
    return f"Two million people live in {city}."


async def run(engine: Engine, *, early: bool) -> dict[str, float]:
    """One turn of the agent: seconds of the whole, of the window, and of the wait behind it."""
    llm = CacheFriendlyLLM(engine=engine, max_new_tokens=200, generate_kwargs={"do_sample": False})
    names = ["weather", "population"] if early else []
    agent = FunctionAgent(tools=[weather, population], llm=llm, early_tools=names)
    stop = engine.tokenizer.eos_token_id
    scripts = [[*engine.token_ids(text), stop] for text in (ASKED, ANSWERED)]
    closed, ended, asked = [], [], []
    with scripted_replies(*scripts):
        began = time.perf_counter()
        handler = agent.run("Tell me about Paris.")
        async for event in handler.stream_events():
            now = time.perf_counter()
            if isinstance(event, AgentStream) and len(event.tool_calls) == TOOLS:
                closed.append(now)
            elif isinstance(event, AgentOutput) and event.tool_calls:
                ended.append(now)
            elif isinstance(event, AgentInput):
                asked.append(now)
        result: AgentOutput = await handler
        took = time.perf_counter() - began
    if len(result.tool_calls) != len(scripts) or len(asked) != len(scripts):
        raise SystemExit("the agent did something else: nothing is compared")
    window, wait = ended[0] - closed[0], asked[1] - ended[0]
    return {"total_s": took, "window_s": window, "wait_s": wait}


def saved(engine: Engine, *, rounds: int) -> dict[str, Any]:
    """Both sides in turn; the share of the window that was saved, by medians."""

    def one(early: bool) -> dict[str, float]:
        return asyncio.run(run(engine, early=early))

    return share_of_window(one, rounds=rounds, longest=TOOL_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    one_thread()
    outcome = saved(demo_engine(), rounds=rounds)
    result = {"limit": LIMIT, "tool_s": TOOL_SECONDS, "rounds": rounds, **outcome}
    keep("li_early_tools", result, passed=outcome["share_of_window"] >= LIMIT)


if __name__ == "__main__":
    main()
