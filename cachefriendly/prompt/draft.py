"""A prompt under construction: recorded blocks and, between them, rendered text.

Text is collected in a *run* and tokenized when a block ends it, so that a rewritten reply and the
turns around it are one text. A *mark* is the digest of everything before the run; two prompts with
the same mark and the same run have the same ids, which is how a later call proves that the whole
prompt of an earlier one lies at its beginning. Digests are of canonical text, in which a control
token that is content differs from one that is structure (see `Disguise.canonical`).
"""

from __future__ import annotations

from cachefriendly.prompt.built import PromptSpan
from cachefriendly.prompt.digests import digest_of
from cachefriendly.prompt.disguise import Disguise
from cachefriendly.prompt.record import PromptBase, Record
from cachefriendly.prompt.tokens import TextTokenizer

__all__ = ["Draft"]


class Draft:
    """Owned by one `build`; not thread safe."""

    def __init__(self, tokens: TextTokenizer, disguise: Disguise) -> None:
        self.ids: list[int] = []
        self.text: list[str] = []
        self.spans: list[PromptSpan] = []
        self.run = ""  # disguised
        self.tip: Record | None = None  # ids start with exactly tip.ids()
        self._mark = b""
        self._tokens = tokens
        self._disguise = disguise

    def write(self, text: str) -> None:
        """Rendered text, still disguised."""
        self.run += text

    def beyond(self, record: Record) -> str | None:
        """The run behind the prompt of ``record``, if that prompt is what was drafted so far.

        What is left is the header the template prints before the reply in history, instead of
        that call's generation prompt.
        """
        length, digest = record.base
        start = self.run[:length]
        if len(start) < length or digest_of(self._mark, self._canonical(start)) != digest:
            return None
        return self.run[length:]

    def take_prompt_and_block(self, record: Record, index: int) -> None:
        """Prompt and output of ``record`` as they were; allowed after `beyond` is not None."""
        start = len(self.ids)
        if record.parent is self.tip and record.shared == start:
            self.ids.extend(record.own)
            self.ids.extend(record.output)
        else:
            self.ids[:] = record.ids()
        self.text += [
            self._disguise.reveal(self.run[: record.base.run_length]),
            record.generation_prompt,
            record.output_text,
        ]
        self._span(start, record.prompt_stop, None)
        self._recorded(record, index)
        self.tip = record
        self._mark = digest_of(b"prompt and block", record.handle.encode())

    def take_block(self, record: Record, index: int, header: str) -> None:
        """Only the generation prompt and output of ``record``, in place of a header in the run."""
        self.run = self.run.removesuffix(header) + record.generation_prompt
        self._mark = digest_of(self._mark, self._canonical(self.run), record.handle.encode())
        self.tokenize_run()
        self.ids.extend(record.output)
        self.text.append(record.output_text)
        self._recorded(record, index)

    def restart_from(self, record: Record, index: int) -> None:
        """Throw away what was drafted; the prompt starts with that of ``record`` regardless."""
        self.ids[:] = record.ids()
        self.text[:] = [self._tokens.decode(self.ids)]
        self.spans.clear()
        self._span(0, record.prompt_stop, None)
        self._recorded(record, index)
        self.tip = record
        self._mark = digest_of(b"prompt and block", record.handle.encode())

    def base(self, generation_prompt: str) -> PromptBase:
        """What `beyond` compares later: the run without the generation prompt at its end."""
        kept = self.run[: len(self.run) - len(generation_prompt)]
        return PromptBase(len(kept), digest_of(self._mark, self._canonical(kept)))

    def tokenize_run(self, index: int | None = None) -> None:
        """Turn the run into ids; it is empty afterwards."""
        start = len(self.ids)
        reveal = self._disguise.reveal if self._disguise else None
        self.ids.extend(self._tokens.encode(self.run, at_start=not start, reveal=reveal))
        self.text.append(self._disguise.reveal(self.run))
        self._span(start, len(self.ids), index)
        self.run = ""

    def _canonical(self, text: str) -> bytes:
        return self._disguise.canonical(text).encode()

    def _recorded(self, record: Record, index: int) -> None:
        self.run = ""
        stop = len(self.ids)
        self.spans.append(PromptSpan(stop - len(record.output), stop, index, "recorded"))

    def _span(self, start: int, stop: int, index: int | None) -> None:
        if stop > start:
            self.spans.append(PromptSpan(start, stop, index, "template"))
