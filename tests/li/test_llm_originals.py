"""Programs written for `llama-index-llms-huggingface`: with one import line changed they run here.

Each program is source text that is executed twice, as it was written and with the import changed.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from cachefriendly.errors import ConfigError
from cachefriendly.testing import tiny_model
from cachefriendly_li import HuggingFaceLLM
from tests.li.watch import TOKENIZER

original = pytest.importorskip("llama_index.llms.huggingface")

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

WRITTEN = "from llama_index.llms.huggingface import HuggingFaceLLM"
SWAPPED = "from cachefriendly_li import HuggingFaceLLM"

HEAD = f"""
{WRITTEN}
from llama_index.core.llms import ChatMessage

# Printable bytes only: random weights write bytes that are no text. One row is never padded, but
# everybody says with what, because transformers asks for it.
printable = [*range(33), *range(127, 320)]
generate = dict(do_sample=False, suppress_tokens=printable, pad_token_id=0)
llm = HuggingFaceLLM(
    model_name=CHECKPOINT,
    tokenizer_name=CHECKPOINT,
    context_window=1024,
    max_new_tokens=6,
    generate_kwargs=generate,
    tokenizer_kwargs=dict(max_length=1024),
    model_kwargs=dict(torch_dtype="float32"),
    device_map="cpu",
    is_chat_model=True,
)
chat = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Hello")]
"""

PROGRAMS = {
    "chat": """
first = llm.chat(chat)
chat += [first.message, ChatMessage(role="user", content="Go on.")]
said = [first.message.content, llm.chat(chat).message.content]
""",
    "achat": """
import asyncio

said = [asyncio.run(llm.achat(chat)).message.content]
""",
    "stream_chat": """
chunks = list(llm.stream_chat(chat))
said = ["".join(chunk.delta for chunk in chunks), chunks[-1].message.content]
""",
    "predict": """
from llama_index.core.prompts import PromptTemplate

said = [llm.predict(PromptTemplate("Tell me about {topic}."), topic="the sea")]
""",
    "stream": """
from llama_index.core.prompts import PromptTemplate

said = ["".join(llm.stream(PromptTemplate("Tell me about {topic}."), topic="the sea"))]
""",
    "loaded objects": """
from transformers import AutoModelForCausalLM, AutoTokenizer

llm = HuggingFaceLLM(
    model=AutoModelForCausalLM.from_pretrained(CHECKPOINT),
    tokenizer=AutoTokenizer.from_pretrained(CHECKPOINT),
    max_new_tokens=5,
    generate_kwargs=generate,
    is_chat_model=True,
)
said = [llm.chat(chat).message.content]
""",
    "stopping_ids": """
varied = dict(
    model_name=CHECKPOINT,
    tokenizer_name=CHECKPOINT,
    generate_kwargs=dict(repetition_penalty=9.0, **generate),
    max_new_tokens=6,
    is_chat_model=True,
)
stop = HuggingFaceLLM(**varied).chat(chat).message.content[3]
llm = HuggingFaceLLM(stopping_ids=[ord(stop)], **varied)
# The original shows the token that it stopped at.
said = [llm.chat(chat).message.content.split(stop)[0]]
""",
    "Settings": """
from llama_index.core import Settings
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer

Settings.llm = llm
memory = ChatMemoryBuffer.from_defaults(token_limit=900)
engine = SimpleChatEngine.from_defaults(system_prompt="Be brief.", memory=memory)
said = [engine.chat(text).response for text in ("Hello", "Why?")]
Settings._llm = None
""",
    "query engine": """
from llama_index.core import Document, MockEmbedding, SummaryIndex

index = SummaryIndex.from_documents([Document(text="The sea is wide.")])
said = [index.as_query_engine(llm=llm).query("What is wide?").response]
""",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("checkpoint")
    tiny_model("llama").save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return str(path)


def run(program: str, checkpoint: str) -> dict[str, Any]:
    names: dict[str, Any] = {"CHECKPOINT": checkpoint}
    exec(compile(program, "program", "exec"), names)
    return names


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_says_the_same(name: str, checkpoint: str) -> None:
    program = HEAD + PROGRAMS[name]
    before = run(program, checkpoint)["said"]
    after = run(program.replace(WRITTEN, SWAPPED), checkpoint)
    assert type(after["llm"]).__module__ == "cachefriendly_li.llm"
    assert after["said"] == before
    assert all(before)


def test_every_constructor_argument_of_the_original_is_taken() -> None:
    taken = inspect.signature(original.HuggingFaceLLM.__init__).parameters
    for name, argument in taken.items():
        if name == "self":
            continue
        llm = HuggingFaceLLM(**{"model_name": "m", name: argument.default})
        assert llm._source.opened is None, name


def test_a_first_argument_that_is_no_name_is_answered_with_the_name_to_give() -> None:
    """The original's first argument is the context window; hardly anybody gives it by place."""
    with pytest.raises(ConfigError, match=r"model_name=3900 is no name.*context_window="):
        HuggingFaceLLM(3900)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["context_window", "max_new_tokens"])
def test_a_number_that_cannot_be_meant_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}(.|\n)*greater than 0(.|\n)*input_value=0"):
        HuggingFaceLLM("m", **{name: 0})


def test_the_original_calls_no_tools() -> None:
    names: dict[str, Any] = vars(original.HuggingFaceLLM)
    assert "_prepare_chat_with_tools" not in names
    assert HuggingFaceLLM("m").metadata.is_function_calling_model
