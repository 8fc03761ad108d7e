"""Programs with tools as they are written for any chat model, run as they stand.

The class that is replaced cannot run them: it leaves tools out of the prompt and refuses results
(`test_originals`).
"""

from __future__ import annotations

from typing import Any

import pytest

from cachefriendly.testing import byte_tokenizer, scripted_replies, templates
from cachefriendly.testing.tokenizer import END_ID

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:create_react_agent has been moved"),
]

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
ANSWER = "It is sunny."

TOOL = """
from cachefriendly_lc import ChatHuggingFace
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

@tool
def get_weather(city: str) -> str:
    "Look up the weather in a city."
    return f"Sunny in {city}."

model = ChatHuggingFace.from_model_id(CHECKPOINT, task="text-generation", max_tokens=200)
"""

NEW_AGENT = """
from langchain.agents import create_agent

agent = create_agent(model, [get_weather])
"""

REACT_AGENT = """
from langgraph.prebuilt import create_react_agent

agent = create_react_agent(model, [get_weather])
"""

GRAPH = """
done = agent.invoke({"messages": [HumanMessage("What is the weather in Oslo?")]})
said = [message.text for message in done["messages"]]
"""

EXECUTOR = """
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_messages(
    [("system", "Be brief."), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)
agent = create_tool_calling_agent(model, [get_weather], prompt)
executor = AgentExecutor(agent=agent, tools=[get_weather], return_intermediate_steps=True)
done = executor.invoke({"input": "What is the weather in Oslo?"})
((action, result),) = done["intermediate_steps"]
said = [done["input"], "", result, done["output"]]
"""

AGENTS = {
    "create_agent": NEW_AGENT + GRAPH,
    "create_react_agent": REACT_AGENT + GRAPH,
    "AgentExecutor": EXECUTOR,
}


@pytest.mark.parametrize("name", AGENTS)
def test_agents_use_their_tools(name: str, checkpoint: str) -> None:
    names: dict[str, Any] = {"CHECKPOINT": checkpoint}
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    replies = [[*tokenizer(text).input_ids, END_ID] for text in (CALL, ANSWER)]
    with scripted_replies(*replies):
        exec(compile(TOOL + AGENTS[name], "program", "exec"), names)
    assert names["said"] == ["What is the weather in Oslo?", "", "Sunny in Oslo.", ANSWER]
    asked, answered = names["model"].engine.reports()
    assert answered.reused_tokens == asked.prompt_tokens + asked.generated_tokens - 1
    names["model"].engine.close()
