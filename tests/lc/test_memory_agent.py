"""Memories under `AgentExecutor` and `ConversationChain`, on real forwards: what is reused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from langchain_classic.agents import AgentExecutor, create_tool_calling_agent
from langchain_classic.chains import ConversationChain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

from cachefriendly import Engine, Loss, MissReason
from cachefriendly.prefix import common_prefix
from cachefriendly.testing import byte_tokenizer, scripted_replies, templates, tiny_model
from cachefriendly.testing.tokenizer import END_ID
from cachefriendly_lc import ChatCacheFriendly, ConversationBufferMemory
from tests.lc.tool_box import add
from tests.lc.usage import cache_read, held_after

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")

CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>'


class Replies(BaseCallbackHandler):
    """Keeps what a model was sent and replied: chains hand out a reply's text only."""

    def __init__(self) -> None:
        self.prompts: list[list[BaseMessage]] = []
        self.messages: list[AIMessage] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.prompts += messages

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        self.messages.append(response.generations[0][0].message)  # type: ignore[union-attr]


def two_turns(
    memory: ConversationBufferMemory, **options: Any
) -> tuple[list[AIMessage], tuple[Loss, ...]]:
    """Two questions to an agent that calls a tool and then answers.

    Its four replies, and what the first call of the second turn had lost.
    """
    tokenizer = byte_tokenizer(templates.NATIVE_TOOLS)
    scripts = [[*tokenizer(text).input_ids, END_ID] for text in (CALL, "It is 5.") * 2]
    prompt = ChatPromptTemplate(
        [
            ("system", "Use the tools."),
            MessagesPlaceholder("history"),
            ("human", "{input}"),
            MessagesPlaceholder("agent_scratchpad"),
        ]
    )
    replies = Replies()
    with Engine(tiny_model("llama"), tokenizer) as engine, scripted_replies(*scripts):
        model = ChatCacheFriendly(engine=engine, max_tokens=200)
        agent = create_tool_calling_agent(model, [add], prompt)
        executor = AgentExecutor(agent=agent, tools=[add], memory=memory, **options)
        for question in ("What is 2 + 3?", "And once more?"):
            done = executor.invoke({"input": question}, {"callbacks": [replies]})
            assert done["output"] == "It is 5."
        losses = engine.reports()[2].losses
    return replies.messages, losses


def test_an_agent_with_intermediate_steps_forgets_nothing() -> None:
    memory = ConversationBufferMemory(return_messages=True)
    replies, losses = two_turns(memory, return_intermediate_steps=True)
    kept: list[BaseMessage] = memory.load_memory_variables({})["history"]
    assert [m.type for m in kept] == ["human", "ai", "tool", "ai"] * 2
    assert (
        kept[1].response_metadata["cachefriendly"] == replies[0].response_metadata["cachefriendly"]
    )
    for before, after in pairwise(replies):
        assert cache_read(after) >= held_after(before)
    assert losses == ()


def test_without_them_the_report_names_what_is_missing() -> None:
    memory = ConversationBufferMemory(return_messages=True)
    replies, losses = two_turns(memory)
    assert [m.type for m in memory.load_memory_variables({})["history"]] == ["human", "ai"] * 2
    assert cache_read(replies[2]) < held_after(replies[1])
    assert [loss.reason for loss in losses] == [MissReason.MESSAGE_REMOVED]


def test_a_history_as_text_is_reused_up_to_the_last_common_token(
    demo_chat: ChatCacheFriendly,
) -> None:
    memory, seen = ConversationBufferMemory(), Replies()
    chain = ConversationChain(llm=demo_chat, memory=memory)
    for question in ("Name a colour.", "Name another one.", "And a third?"):
        chain.invoke({"input": question}, {"callbacks": [seen]})
    assert all(len(prompt) == 1 for prompt in seen.prompts)  # one growing message
    ids = [
        demo_chat.engine.prompt_ids(demo_chat._prepare(prompt, None, {}).request)
        for prompt in seen.prompts
    ]
    common = common_prefix(ids[1], ids[2])
    assert cache_read(seen.messages[2]) == common > len(ids[1]) * 0.8
