"""A real fast tokenizer without files: one id per byte, and control tokens of the usual kinds."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from cachefriendly.testing.templates import CHATML

__all__ = ["CONTROL_TOKENS", "END_ID", "SPECIAL_TOKENS", "START_ID", "byte_tokenizer"]

SPECIAL_TOKENS = ("<|im_start|>", "<|im_end|>")
"""Flagged special: skipped when decoding with ``skip_special_tokens``."""
CONTROL_TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
"""Structure too, but not flagged special: what real tokenizers of tool-calling models do."""
START_ID = 256
END_ID = 257


def byte_tokenizer(chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """Ids 0-255 are bytes, 256 on are `SPECIAL_TOKENS` then `CONTROL_TOKENS`.

    Text is never merged, so its ids do not depend on what stands around it.
    """
    vocabulary = {char: byte for byte, char in enumerate(byte_chars())}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t in CONTROL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=SPECIAL_TOKENS[0],
        eos_token=SPECIAL_TOKENS[1],
        pad_token=SPECIAL_TOKENS[1],
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def byte_chars() -> list[str]:
    """The printable stand-in of each byte in byte-level vocabularies.

    Bytes that print in Latin-1 stand for themselves, the others take the code points from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    chars, spare = [], 256
    for byte in range(256):
        if byte in printable:
            chars.append(chr(byte))
        else:
            chars.append(chr(spare))
            spare += 1
    return chars
