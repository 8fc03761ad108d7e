"""A tokenizer for a chat template that came without one: real merges, and its control tokens."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cachefriendly.compat import template_literals
from cachefriendly.prompt.features import scaffolds
from cachefriendly.prompt.template import ChatTemplate
from cachefriendly.testing.tokenizer import byte_chars

__all__ = ["BEGIN", "END", "likely_control_tokens", "template_tokenizer"]

BEGIN, END = "<s>", "</s>"
"""What ``bos_token`` and ``eos_token`` print."""

# Written with bars or angle brackets and colons: nobody writes these in ordinary text.
_BARRED = re.compile(r"<[|\uff5c][^<>\s]{1,60}[|\uff5c]>|<\|[^<>\s|]{1,40}>|<[^<>\s|]{1,40}\|>")
# Tags, brackets and the like: structure only where a template puts them around a conversation.
_TAGGED = re.compile(r"</?[A-Za-z_][\w:.\-]{0,40}>")
_BRACKETED = re.compile(r"\[/?[A-Z][A-Z_]{2,30}\]|\]~b\]|\[e~\[|\]~!b\[|\]<\][a-z]+\[>\[")
# Enough English for text to be merged: ids of a text depend on what stands around it.
_WORDS = (
    "the is of and to in it that you not for on are with as this be at your from have or by one "
    "user assistant system tool name arguments city weather think answer result function type "
    "object string number rain sun degrees multiply today"
)


def likely_control_tokens(source: str) -> tuple[str, ...]:
    """Texts that are control tokens in the model's own tokenizer, as far as the template shows.

    A guess for templates that came without a tokenizer: everything written like ``<|name|>``, and
    tags that stand around the messages of a rendered conversation.
    """
    literals = template_literals(source)
    found = set(_BARRED.findall(literals) + _BRACKETED.findall(literals))
    tokenizer = SimpleNamespace(special_tokens_map={"bos_token": BEGIN, "eos_token": END})
    for text in scaffolds(ChatTemplate(tokenizer, source)):
        turns = text[text.find("probeuser") :]
        found.update(_BARRED.findall(text) + _TAGGED.findall(turns))
    found.update([partner for text in found if (partner := _partner(text)) in literals])
    return tuple(sorted(text for text in found if text not in (BEGIN, END) and "{" not in text))


def _partner(text: str) -> str:
    """The closing tag of an opening one, and the other way round."""
    return text.replace("</", "<") if text.startswith("</") else text.replace("<", "</", 1)


def template_tokenizer(source: str, controls: tuple[str, ...] | None = None) -> Any:
    """A byte-level BPE tokenizer with some merges, the control tokens and the template."""
    tokens = likely_control_tokens(source) if controls is None else controls
    core = Tokenizer(models.BPE(vocab=_vocabulary()[0], merges=_vocabulary()[1]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (BEGIN, END)]
    )
    # As in real vocabularies, some control tokens are flagged special and some are not.
    core.add_tokens([AddedToken(text, special="|" in text, normalized=False) for text in tokens])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=BEGIN,
        eos_token=END,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = source
    return tokenizer


@functools.cache
def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Bytes, then each word built up from its start, with and without a space in front."""
    vocabulary = {character: byte for byte, character in enumerate(byte_chars())}
    space = byte_chars()[0x20]
    merges: list[tuple[str, str]] = []
    for word in _WORDS.split():
        for text in (word, space + word):
            for size in range(1, len(text)):
                pair = text[:size], text[size]
                if pair not in merges:
                    merges.append(pair)
                    vocabulary.setdefault(text[: size + 1], len(vocabulary))
    return vocabulary, merges
