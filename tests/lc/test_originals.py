"""Programs written for `langchain_huggingface`: after changing one import line they run here.

Each program is source text that is executed twice, as it was written and with the import changed.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage

from cachefriendly_lc import ChatHuggingFace
from cachefriendly_lc.settings import constructor_options

original = pytest.importorskip("langchain_huggingface")

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:create_react_agent has been moved"),
    pytest.mark.skipif(
        not hasattr(BaseChatModel, "_add_version"), reason="the original needs langchain-core 1.6.6"
    ),
]

WRITTEN = "from langchain_huggingface import ChatHuggingFace"
SWAPPED = "from cachefriendly_lc import ChatHuggingFace"

HEAD = f"""
{WRITTEN}
from langchain_huggingface import HuggingFacePipeline
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

llm = HuggingFacePipeline.from_model_id(
    model_id=CHECKPOINT,
    task="text-generation",
    # Printable bytes only: random weights write bytes that are no text, which the original, but
    # not this project, tokenizes anew in the next turn.
    pipeline_kwargs=dict(
        max_new_tokens=8,
        do_sample=False,
        return_full_text=False,
        suppress_tokens=[*range(33), *range(127, 320)],
    ),
)
model = ChatHuggingFace(llm=llm)
"""

CHAT = """
chat = [SystemMessage("Be brief."), HumanMessage("Hello")]
first = model.invoke(chat)
second = model.invoke([*chat, first, HumanMessage("Go on.")])
said = [first.content, second.content]
"""

CHAIN = """
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

chain = ChatPromptTemplate.from_template("Tell me about {topic}") | model | StrOutputParser()
said = [chain.invoke({"topic": "sea"}), *chain.batch([{"topic": "sun"}, {"topic": "rain"}])]
"""

STREAM = """
said = ["".join(chunk.content for chunk in model.stream("Hello"))]
"""

BOUND = """
said = [model.bind(skip_prompt=False).invoke("Hello").content]
"""

PIPELINE = """
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

pipe = pipeline(
    "text-generation",
    model=AutoModelForCausalLM.from_pretrained(CHECKPOINT),
    tokenizer=AutoTokenizer.from_pretrained(CHECKPOINT),
    max_new_tokens=5,
    do_sample=False,
    repetition_penalty=1.3,
    return_full_text=False,
)
model = ChatHuggingFace(llm=HuggingFacePipeline(pipeline=pipe))
said = [model.invoke("Hello").content]
"""

FROM_ID = """
model = ChatHuggingFace.from_model_id(
    CHECKPOINT,
    task="text-generation",
    device=-1,
    max_tokens=5,
    do_sample=False,
    pipeline_kwargs=dict(return_full_text=False),
)
said = [model.invoke("Hello").content, model.model_id]
"""

CONVERSATION = """
from langchain_classic.chains import ConversationChain
from langchain_classic.memory import ConversationBufferMemory

chain = ConversationChain(llm=model, memory=ConversationBufferMemory())
said = [chain.predict(input=text) for text in ("Hello", "Who are you?", "Why?")]
"""

HISTORY = """
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.runnables.history import RunnableWithMessageHistory

kept = InMemoryChatMessageHistory()
chat = RunnableWithMessageHistory(model, lambda session_id: kept)
config = {"configurable": {"session_id": "s"}}
said = [chat.invoke([HumanMessage(text)], config).content for text in ("Hello", "Why?")]
said.append(len(kept.messages))
"""

AGENT = """
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

agent = create_agent(model, [], system_prompt="Be brief.", checkpointer=InMemorySaver())
config = {"configurable": {"thread_id": "t"}}
turns = [agent.invoke({"messages": [HumanMessage(text)]}, config) for text in ("Hello", "Why?")]
said = [message.content for message in turns[-1]["messages"]]
"""

REACT_AGENT = """
from langgraph.prebuilt import create_react_agent

agent = create_react_agent(model, [], prompt="Be brief.")
done = agent.invoke({"messages": [HumanMessage("Hello")]})
said = [message.content for message in done["messages"]]
"""

EXECUTOR = """
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_classic.memory import ConversationBufferMemory
from langchain_core.prompts import ChatPromptTemplate

prompt = ChatPromptTemplate.from_messages(
    [("placeholder", "{history}"), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)
executor = AgentExecutor(
    agent=create_tool_calling_agent(model, [], prompt),
    tools=[],
    memory=ConversationBufferMemory(return_messages=True),
)
said = [executor.invoke({"input": text})["output"] for text in ("Hello", "Why?")]
"""

PROGRAMS = {
    "chat": CHAT,
    "chain": CHAIN,
    "stream": STREAM,
    "bound": BOUND,
    "pipeline": PIPELINE,
    "from_model_id": FROM_ID,
    "ConversationChain": CONVERSATION,
    "RunnableWithMessageHistory": HISTORY,
    "create_agent": AGENT,
    "create_react_agent": REACT_AGENT,
    "AgentExecutor": EXECUTOR,
}


def run(program: str, checkpoint: str) -> dict[str, Any]:
    names: dict[str, Any] = {"CHECKPOINT": checkpoint}
    exec(compile(program, "program", "exec"), names)
    return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_says_the_same(name: str, checkpoint: str) -> None:
    program = HEAD + PROGRAMS[name]
    before = run(program, checkpoint)["said"]
    after = run(program.replace(WRITTEN, SWAPPED), checkpoint)
    assert type(after["model"]).__module__ == "cachefriendly_lc.chat_model"
    assert after["said"] == before
    assert any(before)
    after["model"].engine.close()


def test_the_original_cannot_use_tools(checkpoint: str) -> None:
    names = run(HEAD, checkpoint)
    call = {"name": "get_weather", "args": {"city": "Oslo"}, "id": "c1"}
    history = [
        names["HumanMessage"]("Weather?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("Sunny.", tool_call_id="c1"),
    ]
    with pytest.raises(ValueError, match="must be a HumanMessage"):
        names["model"].invoke(history)
    assert ChatHuggingFace(llm=names["llm"]).invoke(history).content


def test_constructor_arguments_are_those_of_the_original() -> None:
    """Each is a field here, or is accepted as another name of one, or means nothing locally."""
    ours = ChatHuggingFace.model_fields
    for name, field in original.ChatHuggingFace.model_fields.items():
        for spelled in {name, field.alias or name}:
            taken = constructor_options({spelled: None}, ours)
            assert set(taken) <= set(ours), spelled


def test_methods_take_what_the_original_takes() -> None:
    theirs, pipeline = original.ChatHuggingFace, original.HuggingFacePipeline
    for name in ("from_model_id", "bind_tools", "with_structured_output", "invoke", "stream"):
        wanted, taken = parameters(theirs, name), parameters(ChatHuggingFace, name)
        assert places(wanted) == places(taken)[: len(places(wanted))], name
        assert needed(taken) <= needed(wanted), name
    options = parameters(pipeline, "from_model_id").keys()
    assert options - parameters(ChatHuggingFace, "from_model_id").keys() == {"batch_size", "kwargs"}


def parameters(kind: type, method: str) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(getattr(kind, method)).parameters)


def places(taken: dict[str, inspect.Parameter]) -> list[str]:
    """Names of what may be given without a name."""
    return [name for name, one in taken.items() if one.kind is one.POSITIONAL_OR_KEYWORD]


def needed(taken: dict[str, inspect.Parameter]) -> set[str]:
    return {name for name in places(taken) if taken[name].default is inspect.Parameter.empty}
