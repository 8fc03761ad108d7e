"""Tokenizers of every usual kind, trained here in milliseconds on a few sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from cachefriendly.testing import templates

__all__ = ["KINDS", "odd_tokenizer"]

_CORPUS = [
    "The ship left the harbour at dawn, and the crew sang while the wind filled the sails.",
    "user assistant system question answer 1 2 3 10 100  two  spaces\n\nand lines\n\tindented",
    "é è ü ß ñ 漢字 かな привет мир עברית \U0001f600 \U0001f468\u200d\U0001f469 i\u0307 ﬁ Ⅳ ½",
] * 4
_SPECIAL = ("<unk>", "<s>", "<|im_start|>", "<|im_end|>")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
Kind = Callable[[], Tokenizer]


def _byte_level(*, prefix: bool = False, regex: bool = True) -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    core.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        _CORPUS,
        trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False),
    )
    return core


def _fallback_bpe(scheme: str, *, split: bool = True) -> Tokenizer:
    core = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    _sentencepiece(core, scheme, split)
    core.train_from_iterator(
        _CORPUS,
        trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", *_BYTES], show_progress=False),
    )
    return _plain_bytes(core)


def _legacy_bpe() -> Tokenizer:
    """A prefix space by normalizer, no pre-tokenizer: the first Llama tokenizers."""
    core = _fallback_bpe("never", split=False)
    core.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    core.pre_tokenizer = None
    return core


def _unigram(scheme: str) -> Tokenizer:
    core = Tokenizer(models.Unigram())
    core.normalizer = normalizers.NFKC()
    _sentencepiece(core, scheme, split=True)
    core.train_from_iterator(
        _CORPUS,
        trainers.UnigramTrainer(
            vocab_size=150, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False
        ),
    )
    return core


def _sentencepiece(core: Tokenizer, scheme: str, split: bool) -> None:
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    if scheme != "never":
        steps.append(decoders.Strip(" ", 1, 0))
    core.decoder = decoders.Sequence(steps)


def _plain_bytes(core: Tokenizer) -> Tokenizer:
    """Byte tokens were special for the trainer only; in a vocabulary they are ordinary pieces."""
    import json

    state = json.loads(core.to_str())
    state["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(state))


KINDS: dict[str, Kind] = {
    "byte level": _byte_level,
    "byte level, prefix space": lambda: _byte_level(prefix=True),
    "byte level, no words": lambda: _byte_level(regex=False),
    "fallback, first": lambda: _fallback_bpe("first"),
    "fallback, first, no words": lambda: _fallback_bpe("first", split=False),
    "fallback, always": lambda: _fallback_bpe("always"),
    "fallback, never": lambda: _fallback_bpe("never"),
    "fallback, legacy": _legacy_bpe,
    "unigram, first": lambda: _unigram("first"),
    "unigram, always": lambda: _unigram("always"),
    "unigram, never": lambda: _unigram("never"),
}


def odd_tokenizer(
    kind: str, *, added: tuple[AddedToken, ...] = (), bos: bool = False, **flags: bool
) -> Any:
    """A tokenizer of that kind with ChatML.

    Args:
        added: further tokens, not special.
        bos: a post-processor puts ``<s>`` in front of everything that is encoded.
        flags: of the control tokens (``lstrip``, ``rstrip``, ``single_word``, ``normalized``).
    """
    core = KINDS[kind]()
    flags = {"normalized": False, **flags}
    core.add_special_tokens([AddedToken(text, special=True, **flags) for text in _SPECIAL])
    core.add_tokens(list(added))
    if bos:
        core.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", core.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="<|im_end|>",
        unk_token="<unk>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = templates.CHATML
    return tokenizer
