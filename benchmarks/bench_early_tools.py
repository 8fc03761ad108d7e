"""Two 300 ms tools in one message: how much of the time the model still writes they make use of.

The same agent on the demo model with and without ``early_tools``. 135M parameters do not make two
calls unforced, so the ids of the replies are scripted; every forward is real. Without the
middleware the tools start when the turn is over. With it they start when their arguments are
written: at best all the time between the last closed call and the end of the turn is saved, or the
tools' own time where that is less.

Compared is how long the agent waits between the end of that turn and the end of its tools' step:
how fast the model writes (and who else uses the machine) does not enter, nor what is prefilled
while they run. Seconds of whole runs stand beside.

Prediction before the first run: 95 % of it; starting a thread takes a millisecond.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from record import keep, one_thread, share_of_window

from cachefriendly import Engine
from cachefriendly.demo import demo_engine
from cachefriendly.events import ChatEvent, Finished, ToolCallReady
from cachefriendly.testing import scripted_replies
from cachefriendly_lc import CacheFriendlyMiddleware, ChatCacheFriendly
from cachefriendly_lc.calls import PreparedCall
from cachefriendly_lc.listener import listening

LIMIT = 0.8
TOOL_SECONDS = 0.3
CALL = '<tool_call>\n{{"name": "{}", "arguments": {{"city": "Paris"}}}}\n</tool_call>\n'
ASKED = CALL.format("weather") + CALL.format("population") + "I look both up."
ANSWERED = "Paris is sunny."


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    time.sleep(TOOL_SECONDS)
    return f"It is sunny in {city}."


@tool
def population(city: str) -> str:
    """How many people live in a city."""
    time.sleep(TOOL_SECONDS)
    return f"Two million people live in {city}."


class Watch(AgentMiddleware[Any, Any, Any]):
    """Notes when the last call's arguments were complete, when the turn and the tools ended."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []
        self.closed = self.ended = 0.0

    def before_model(self, state: Any, runtime: Any) -> None:
        self.steps.append(time.perf_counter())

    def asks(self, call: PreparedCall) -> PreparedCall:
        return call

    def hears(self, call: PreparedCall, event: ChatEvent) -> None:
        if isinstance(event, ToolCallReady):
            self.closed = time.perf_counter()
        elif isinstance(event, Finished) and event.result.message.tool_calls:
            self.ended = time.perf_counter()


def run(engine: Engine, *, early: bool, asynchronous: bool) -> dict[str, float]:
    """One turn of the agent: seconds of the whole, of the window, and of the wait behind it."""
    model = ChatCacheFriendly(engine=engine, temperature=0, max_tokens=200)
    mine = CacheFriendlyMiddleware(model, early_tools=[weather, population])
    watch = Watch()
    others = [watch, mine] if early else [watch]
    agent: Any = create_agent(model, [weather, population], middleware=others)
    turn = {"messages": [HumanMessage("Tell me about Paris.")]}
    stop = engine.tokenizer.eos_token_id
    scripts = [[*engine.token_ids(text), stop] for text in (ASKED, ANSWERED)]
    with scripted_replies(*scripts), listening(watch):
        began = time.perf_counter()
        done = asyncio.run(agent.ainvoke(turn)) if asynchronous else agent.invoke(turn)
        took = time.perf_counter() - began
    if [m.type for m in done["messages"]] != ["human", "ai", "tool", "tool", "ai"]:
        raise SystemExit("the agent did something else: nothing is compared")
    window, wait = watch.ended - watch.closed, watch.steps[1] - watch.ended
    return {"total_s": took, "window_s": window, "wait_s": wait}


def saved(engine: Engine, *, rounds: int, asynchronous: bool) -> dict[str, Any]:
    """Both sides in turn; the share of the window that was saved, by medians."""

    def one(early: bool) -> dict[str, float]:
        return run(engine, early=early, asynchronous=asynchronous)

    return share_of_window(one, rounds=rounds, longest=TOOL_SECONDS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    one_thread()
    engine = demo_engine()
    forms = {
        name: saved(engine, rounds=rounds, asynchronous=name == "ainvoke")
        for name in ("invoke", "ainvoke")
    }
    share = min(form["share_of_window"] for form in forms.values())
    result = {"limit": LIMIT, "tool_s": TOOL_SECONDS, "rounds": rounds, **forms}
    keep("early_tools", result, passed=share >= LIMIT)


if __name__ == "__main__":
    main()
