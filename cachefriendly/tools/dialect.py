"""What a tool dialect is, and which one a chat template speaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from cachefriendly.messages import Message, Tool, ToolCall
from cachefriendly.rows import GrammarSpec
from cachefriendly.tools.dialects.blocks import (
    APERTUS,
    APRIEL,
    COHERE,
    COMMAND_R_PLUS,
    FIREFUNCTION,
    FUNCTIONARY_TAG,
    GIGACHAT,
    GIGACHAT3,
    GRANITE3,
    MINIMAX_M1,
    NEMOTRON_V2,
    SOLAR,
)
from cachefriendly.tools.dialects.deepseek import DeepSeekDialect
from cachefriendly.tools.dialects.dsml import BLOCKS, DsmlDialect
from cachefriendly.tools.dialects.functionary import FunctionaryDialect
from cachefriendly.tools.dialects.gemma4 import GemmaDialect
from cachefriendly.tools.dialects.glm import GLM, GLM_TIGHT
from cachefriendly.tools.dialects.harmony import HarmonyDialect
from cachefriendly.tools.dialects.hermes import HermesDialect
from cachefriendly.tools.dialects.kimi import KimiDialect
from cachefriendly.tools.dialects.lfm2 import Lfm2Dialect
from cachefriendly.tools.dialects.llama3 import Llama3Dialect
from cachefriendly.tools.dialects.mistral import (
    MISTRAL,
    MISTRAL_CALL_ID,
    MISTRAL_LIST,
)
from cachefriendly.tools.dialects.plain_json import PlainJsonDialect
from cachefriendly.tools.dialects.qwen3_coder import QWEN3_CODER
from cachefriendly.tools.dialects.tags import (
    HUNYUAN,
    MINICPM,
    MINIMAX,
    SEED,
)
from cachefriendly.tools.native import NativeDialect
from cachefriendly.tools.stream import THINK, Reasoning, ReplyParser

__all__ = ["DIALECTS", "Dialect", "dialect_for"]


class Dialect(Protocol):
    """How tools, calls and results are written for a model, and how its calls are read.

    ``markers`` are the texts that are structure, those of the reasoning among them: they must not
    arise from untrusted text. ``reasoning`` are the texts around a reply's reasoning; None when
    it is no single block at the reply's start.
    """

    @property
    def name(self) -> str: ...

    @property
    def markers(self) -> tuple[str, ...]: ...

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts of tokens that end a reply beside those that the model names itself."""
        ...

    @property
    def reasoning(self) -> Reasoning | None: ...

    def speaks(self, template: str) -> bool:
        """Whether the chat template (its source) prints calls in this form."""
        ...

    def opens_reasoning(self, prompt: str) -> bool:
        """Whether the prompt (or generation prompt) leaves a block of reasoning open."""
        ...

    def call_id(self, call: ToolCall, index: int) -> str:
        """The id of a call in the form that the templates take; most take any.

        ``index`` is the call's place in its message. Equal arguments give equal ids.
        """
        ...

    def describe(self, tools: Sequence[Tool]) -> str:
        """The tools for templates that know none: goes to the end of the system message."""
        ...

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """The text of calls inside an assistant turn, for templates that know no tools."""
        ...

    def render_result(self, message: Message) -> str:
        """The text of a tool result, for templates that know no tools (as a user turn)."""
        ...

    def parser(
        self, *, id_seed: str, tools: Sequence[Tool] = (), reasoning_open: bool = False
    ) -> ReplyParser:
        """A parser for one reply to a request that offered ``tools``; equal seeds give equal call
        ids. The schema of a tool says what type an argument has where the text does not.
        """
        ...

    def text_parser(self, *, id_seed: str, reasoning_open: bool = False) -> ReplyParser:
        """A parser for a reply that holds no calls: none were offered, or they are forbidden."""
        ...

    def call_grammar(self, tools: Sequence[Tool], *, many: bool = False) -> GrammarSpec:
        """A reply that is one call of one of these tools (``many``: or several).

        Raises:
            RequestError: there is no tool to call.
            SchemaError: a tool's parameters cannot be turned into a grammar.
            MissingExtra: llguidance is not installed.
        """
        ...


DIALECTS: tuple[NativeDialect, ...] = (
    HarmonyDialect(),
    KimiDialect(),
    DeepSeekDialect(),
    DeepSeekDialect(fenced=True),
    *(DsmlDialect(block=block) for block in BLOCKS),
    GemmaDialect(),
    MISTRAL_CALL_ID,
    MISTRAL,
    MISTRAL_LIST,
    QWEN3_CODER,
    GLM_TIGHT,
    GLM,
    HUNYUAN,
    SEED,
    MINIMAX,
    MINICPM,
    APERTUS,
    APRIEL,
    MINIMAX_M1,
    NEMOTRON_V2,
    COHERE,
    COMMAND_R_PLUS,
    FIREFUNCTION,
    GIGACHAT,
    GIGACHAT3,
    SOLAR,
    FUNCTIONARY_TAG,
    FunctionaryDialect(),
    GRANITE3,
    Lfm2Dialect(),
    Llama3Dialect(),
    HermesDialect(),
    PlainJsonDialect(),
)
"""All of them, in the order in which a template is asked: the more telling marks first."""

_REASONINGS = (
    Reasoning("[THINK]", "[/THINK]"),
    Reasoning("<seed:think>", "</seed:think>"),
    Reasoning("<mm:think>", "</mm:think>"),
    Reasoning("<|inner_prefix|>", "<|inner_suffix|>"),
    Reasoning("<|START_THINKING|>", "<|END_THINKING|>"),
    Reasoning("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
)


def dialect_for(chat_template: str | None) -> Dialect:
    """The dialect whose calls the template prints; Hermes when it prints none that is known.

    It reads reasoning between the texts that the template puts around it.
    """
    template = chat_template or ""
    spoken = next((dialect for dialect in DIALECTS if dialect.speaks(template)), HermesDialect())
    if spoken.reasoning == THINK:
        for reasoning in _REASONINGS:
            if all(text in template for text in reasoning.texts):
                return replace(spoken, reasoning=reasoning)
    return spoken
