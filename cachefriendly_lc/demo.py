"""The LangChain half of ``cachefriendly demo``: an agent with two tools and a checkpointer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool

from cachefriendly.demo_run import DemoScenario
from cachefriendly.errors import MissingExtra
from cachefriendly_lc.chat_model import ChatCacheFriendly

try:
    from langchain.agents import create_agent
    from langchain.agents.middleware import ModelRequest, ModelResponse, wrap_model_call
    from langgraph.checkpoint.memory import InMemorySaver
except ImportError as error:
    raise MissingExtra("langchain", "agents") from error

if TYPE_CHECKING:
    from cachefriendly.engine.engine import Engine

__all__ = ["DEMO"]

_SYSTEM: Final = "You are a travel assistant. Answer in one short sentence."
_TURNS: Final = {
    "What is the weather in Paris?": "get_weather",
    "Book a table for 2 people in Paris.": "book_table",
    "And what is the weather in Rome?": "get_weather",
    "Book a table for 4 people in Rome.": "book_table",
}
_WEATHER: Final = {"Paris": "sunny and 21 degrees", "Rome": "rainy and 17 degrees"}


@tool
def get_weather(city: str) -> str:
    """Look up the weather in a city."""
    return f"It is {_WEATHER.get(city, 'cloudy')} in {city}."


@tool
def book_table(city: str, people: int) -> str:
    """Book a restaurant table in a city."""
    return f"A table for {people} in {city} is booked at 19:30."


@wrap_model_call
def call_first(
    request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
) -> ModelResponse[Any]:
    """Make each turn begin with its tool: 135M parameters rarely call one unasked."""
    last = request.messages[-1]
    asked = isinstance(last, HumanMessage)
    return handler(request.override(tool_choice=_TURNS[last.text] if asked else "none"))


def _run(engine: Engine) -> list[str]:
    agent: Any = create_agent(
        # The penalty keeps so small a model from copying the tool's answer, markers included.
        ChatCacheFriendly(engine=engine, temperature=0, max_tokens=40, repetition_penalty=1.08),
        [get_weather, book_table],
        system_prompt=_SYSTEM,
        middleware=[call_first],
        checkpointer=InMemorySaver(),
    )
    thread: RunnableConfig = {"configurable": {"thread_id": "demo"}}
    state: dict[str, Any] = {"messages": []}
    for question in _TURNS:
        state = agent.invoke({"messages": [HumanMessage(question)]}, thread)
    return [_said(message) for message in state["messages"] if isinstance(message, AIMessage)]


def _said(message: AIMessage) -> str:
    calls = (
        f"{call['name']}({', '.join(f'{name}={value!r}' for name, value in call['args'].items())})"
        for call in message.tool_calls
    )
    return "; ".join(calls) or message.text


DEMO: Final = DemoScenario("LangChain agent with two tools", _run)
