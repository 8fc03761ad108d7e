"""What a turn with retrieved nodes sends, and how many of them fit into one message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.callbacks import CallbackManager
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts import BasePromptTemplate, PromptTemplate
from llama_index.core.settings import Settings
from llama_index.core.utilities.token_counting import TokenCounter

from cachefriendly_li.llm import CacheFriendlyLLM
from cachefriendly_li.nodes import with_nodes
from cachefriendly_li.prediction import Asked

__all__ = ["NodesPrompts"]

# Kept free for the answer that a later part is to refine: LlamaIndex's number.
_ANSWER_ROOM = 500


@dataclass(frozen=True, slots=True)
class NodesPrompts:
    """A chat engine's templates over its LLM, behind a ``prefix`` that never changes.

    ``memory_limit``: tokens that the memory keeps to by itself, prefix included; None when it
    does not. Such a memory makes room for the nodes of a turn; beside any other, nodes get what
    the history leaves.
    """

    llm: LLM
    callback_manager: CallbackManager
    prefix: tuple[ChatMessage, ...]
    context: BasePromptTemplate
    refining: BasePromptTemplate
    memory_limit: int | None

    @property
    def helper(self) -> PromptHelper:
        """LlamaIndex's arithmetic of the context window, with the model's own tokenizer."""
        given = Settings._prompt_helper
        if given is not None:
            return given
        return PromptHelper.from_llm_metadata(self.llm.metadata, tokenizer=_tokenizer(self.llm))

    def first(self, question: str, part: str) -> ChatMessage:
        """The user's message over the first part of the nodes, or all of them."""
        text = self.context.format(llm=None, **_first_values(question, part))
        return _asking(self.context, text, question)

    def asked(self, question: str, part: str, sent: list[ChatMessage]) -> Asked:
        """A conversation that ends with `first`."""
        return Asked(self.context, _first_values(question, part), sent)

    def whole(self, question: str, texts: Sequence[str]) -> list[str] | None:
        """The nodes as one part; None when history or window leave no room for that."""
        if not self._makes_room:
            return None
        parts = self._packed([*self.prefix, self.first(question, "")], texts)
        return parts if len(parts) == 1 else None

    def split(
        self, question: str, texts: Sequence[str], history: Sequence[ChatMessage]
    ) -> list[str]:
        """The nodes in as few parts as fit behind the history, of which memory may cut half.

        Raises:
            ValueError: the window has no room for any nodes.
        """
        before = [*self.prefix, self.first(question, "")]
        if not self._makes_room:
            return self._packed([*before, *history], texts)
        counter = TokenCounter(tokenizer=_tokenizer(self.llm))
        kept = (self.memory_limit or 0) - counter.get_string_tokens(_text_of(before))
        splitter = self.helper.get_text_splitter_given_prompt(
            PromptTemplate(_text_of(before)), padding=_ANSWER_ROOM, llm=self.llm
        )
        room = min(splitter.chunk_size, kept)
        taken = counter.get_string_tokens(_text_of(history))
        # Memory never cuts the newest turn: beside a small one a part may be more than it keeps to.
        least = splitter.chunk_size // 4
        return self._packed(before, texts, limit=max(room - taken, room // 2, least, 1))

    def refine(
        self, question: str, answer: str, before: Sequence[ChatMessage], rest: Sequence[str]
    ) -> tuple[Asked, list[str]]:
        """What refines an answer over the next part, and the parts left after it.

        ``before`` is what stands before the user's message. A part that does not fit beside the
        answer is split once more.
        """
        parts = self._packed([*before, self._again(question, "", answer)], rest[:1], padding=0)
        message = self._again(question, parts[0], answer)
        values = _again_values(question, parts[0], answer)
        return Asked(self.refining, values, [*before, message]), [*parts[1:], *rest[1:]]

    @property
    def _makes_room(self) -> bool:
        metadata = self.llm.metadata
        limit = self.memory_limit
        return limit is not None and limit <= metadata.context_window - max(metadata.num_output, 0)

    def _again(self, question: str, part: str, answer: str) -> ChatMessage:
        text = self.refining.format(llm=None, **_again_values(question, part, answer))
        return _asking(self.refining, text, question)

    def _packed(
        self,
        messages: Sequence[ChatMessage],
        texts: Sequence[str],
        *,
        padding: int = _ANSWER_ROOM,
        limit: int | None = None,
    ) -> list[str]:
        helper = self.helper
        if limit is not None:
            helper = helper.model_copy(update={"chunk_size_limit": limit})
        prompt = PromptTemplate(_text_of(messages))
        return helper.repack(prompt, texts, padding=padding, llm=self.llm) or [""]


def _first_values(question: str, part: str) -> dict[str, str]:
    return {"context_str": part, "query_str": question}


def _again_values(question: str, part: str, answer: str) -> dict[str, str]:
    return {"context_msg": part, "existing_answer": answer, "query_str": question}


def _asking(template: BasePromptTemplate, text: str, question: str) -> ChatMessage:
    """A template that does not say where the question goes has it behind the nodes."""
    if "query_str" not in template.template_vars:
        text = f"{text.strip()}\n\n{question}"
    return with_nodes(question, text)


def _text_of(messages: Sequence[ChatMessage]) -> str:
    """Messages as text to count tokens of. LlamaIndex counts messages with a tokenizer of its own,
    text with the one it is given."""
    return "".join(f"{message.role.value}\n{message.content or ''}\n" for message in messages)


def _tokenizer(llm: LLM) -> Callable[[str], list[int]] | None:
    return llm.tokenize if isinstance(llm, CacheFriendlyLLM) else None
