"""Names for what turns messages into ids: tokenizer, template, template arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cachefriendly.messages import canonical_json
from cachefriendly.prompt.digests import digest_of

__all__ = ["prompt_fingerprint", "tokenizer_digest"]


def tokenizer_digest(tokenizer: Any) -> bytes:
    """Digest of everything that decides ids; a slow tokenizer is named by its vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        return digest_of(backend.to_str().encode())
    added = {str(key): str(token) for key, token in tokenizer.added_tokens_decoder.items()}
    state = canonical_json([type(tokenizer).__name__, tokenizer.get_vocab(), added])
    return digest_of(state.encode("utf-8", "surrogatepass"))


def prompt_fingerprint(
    tokenizer: Any, template: str | None, template_arguments: Mapping[str, Any]
) -> str:
    """16 hex digits; equal for equal tokenizer, template and arguments, in every process."""
    return fingerprint_of(tokenizer_digest(tokenizer), template, template_arguments)


def fingerprint_of(
    tokenizer: bytes, template: str | None, template_arguments: Mapping[str, Any]
) -> str:
    """`prompt_fingerprint` with the costly part, the tokenizer's digest, given."""
    arguments = canonical_json(template_arguments).encode("utf-8", "surrogatepass")
    source = (template or "").encode("utf-8", "surrogatepass")
    return digest_of(tokenizer, source, arguments).hex()[:16]
