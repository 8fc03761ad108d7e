"""The public engine: chat requests in, replies out, with keys and values kept between calls."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from transformers import PreTrainedModel

from cachefriendly.compat_transformers import text_config
from cachefriendly.config import EngineConfig
from cachefriendly.engine.call import Call, Deadline
from cachefriendly.engine.constraint import constraint_for, parser_for, with_stops
from cachefriendly.engine.loaded import LoadedEngine
from cachefriendly.engine.loader import LoadedModel, ModelSource, context_window_of
from cachefriendly.engine.reply import Reply
from cachefriendly.engine.report import ReplyRecorder
from cachefriendly.engine.shared import SharedEngines
from cachefriendly.engine.stats import EngineStats
from cachefriendly.engine.token_engine import TokenEngine
from cachefriendly.errors import ConfigError, EngineClosed, RequestError
from cachefriendly.events import CacheReport
from cachefriendly.prompt.built import BuiltPrompt
from cachefriendly.request import ChatRequest
from cachefriendly.rows import GenerateRequest
from cachefriendly.tools.schema import check_tools

__all__ = ["Engine"]

REPORTS_KEPT = 1000


class Engine:
    """A local transformers model whose keys and values stay alive between calls.

    Example:
        >>> engine = Engine.from_pretrained("path/or/hub-id")
        >>> request = ChatRequest(messages=(Message("user", "Hello"),))
        >>> engine.chat(request).result().message.content

    The model stays its owner's: outside the engine's own steps its attention is what it was, and
    `close` gives it back. All methods may be called from any thread.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: Any, config: EngineConfig | None = None
    ) -> None:
        if not isinstance(model, PreTrainedModel):
            kind = type(model).__name__
            raise ConfigError(
                f"Engine(model, tokenizer): the model is a {kind}, not a transformers "
                "PreTrainedModel; for a path or hub id use Engine.from_pretrained"
            )
        name = getattr(model.config, "name_or_path", "") or type(model).__name__
        self._init(LoadedModel(model, tokenizer), name, config or EngineConfig())

    def _init(self, source: LoadedModel | ModelSource, name: str, config: EngineConfig) -> None:
        self.config = config
        self.model_name = name
        self._source = source
        self._lock = threading.Lock()
        self._state: LoadedEngine | None = None
        self._closed = False
        self._finalizer: Callable[[], Any] | None = None
        self._recorder = ReplyRecorder(kept=REPORTS_KEPT, reuse=config.reuse)

    @classmethod
    def from_pretrained(
        cls,
        model: str,
        *,
        tokenizer: str | None = None,
        gguf_file: str | None = None,
        dtype: str = "auto",
        device_map: str | Mapping[str, Any] | None = None,
        config: EngineConfig | None = None,
    ) -> Engine:
        """An engine over a local path or hub id. Nothing is loaded before it is needed, and equal
        arguments give the same open engine, so two adapters hold one copy of the weights.

        Args:
            gguf_file: name of a GGUF file inside ``model``.
            dtype: ``"auto"`` (the checkpoint's) or a torch dtype name.
            device_map: passed to transformers (needs accelerate).

        Raises:
            ConfigError: ``model`` is written as a path, and nothing is there.
        """
        places = (
            tuple(sorted(device_map.items())) if isinstance(device_map, Mapping) else device_map
        )
        source = ModelSource(str(model), tokenizer, gguf_file, dtype, places)
        source.check_path()
        return cls._named(source, config or EngineConfig())

    @classmethod
    def _named(cls, source: ModelSource, config: EngineConfig) -> Engine:
        def make() -> Engine:
            engine = cls.__new__(cls)
            engine._init(source, source.name, config)
            return engine

        return _SHARED.get((source, config), make)

    @classmethod
    def of(
        cls, model: PreTrainedModel, tokenizer: Any, config: EngineConfig | None = None
    ) -> Engine:
        """The open engine of a loaded model, or a new one: adapters over one model share it.

        Raises:
            ConfigError: at the first call, when another engine runs this model already (with
                another tokenizer or other options).
        """
        config = config or EngineConfig()
        key = (id(model), id(tokenizer), config)
        return _SHARED.get(key, lambda: cls(model, tokenizer, config))

    @property
    def model(self) -> PreTrainedModel:
        return self._live().loaded.model

    @property
    def tokenizer(self) -> Any:
        return self._live().loaded.tokenizer

    @property
    def context_window(self) -> int:
        """Tokens that one sequence may have, prompt and reply together. Loads no weights."""
        state, source = self._state, self._source
        if state is not None:
            return state.tokens.window
        config = source.config() if isinstance(source, ModelSource) else source.model.config
        return context_window_of(config, self.config.context_window)

    def load(self) -> Self:
        """Load the model now instead of at the first call."""
        self._live()
        return self

    def token_ids(self, text: str) -> list[int]:
        """Ids of a text on its own; control tokens in it are structure, as in a prompt."""
        return list(self._live().prompts.encode_text(text))

    def count_tokens(self, text: str) -> int:
        return len(self.token_ids(text))

    def prompt_ids(self, request: ChatRequest) -> tuple[int, ...]:
        """The exact prompt that `chat` would forward for a request, generation prompt included."""
        check_tools(request.tools)
        return self._live().prompts.build(request).ids

    def count_message_tokens(self, request: ChatRequest) -> int:
        """Length of the prompt of the whole conversation, whatever ``overflow`` leaves out."""
        check_tools(request.tools)
        return len(self._live().prompts.build(request, whole=True).ids)

    @property
    def token_engine(self) -> TokenEngine:
        """The lower half, ids in and ids out: for callers that make their own prompts."""
        return self._live().tokens

    def chat(self, request: ChatRequest, *, timeout: float | None = None) -> Call:
        """Start a call. Returns at once; the reply arrives through the `Call`.

        Args:
            timeout: seconds for the whole reply; consuming the call later than that raises
                TimeoutError and cancels it.

        Raises:
            RequestError: the request cannot be served (its subclasses say why).
            UnsupportedModel: the architecture does not run exactly.
            EngineClosed: the engine was closed.
        """
        started = time.perf_counter()
        deadline = Deadline.after(timeout)
        if not isinstance(request, ChatRequest):
            kind = type(request).__name__
            raise RequestError(
                f"chat takes a ChatRequest, not {kind}; see cachefriendly.ChatRequest"
            )
        live = self._live()
        check_tools(request.tools)
        grammar = constraint_for(request, live.prompts.dialect)
        built = live.prompts.build(request)
        limits = live.limited(request.sampling, len(built.ids))
        row = GenerateRequest(
            prompt_ids=built.ids,
            sampling=with_stops(limits, live.prompts.dialect, live.prompts.tokens.controls),
            namespace=request.namespace,
            grammar=grammar,
            snapshots_at=built.snapshots_at,
        )
        return self._submit(live, request, built, row, started, deadline)

    def prefill(self, request: ChatRequest, *, awaiting: Collection[str] = ()) -> Call:
        """Forward a history and keep it, without generating: work done while a tool still runs.

        The result has an empty message; the next `chat` that continues this history reuses it.

        Args:
            awaiting: ids of the last assistant message's calls that have no result yet, in their
                order, or as a set where results come in an order that nobody knows yet. What
                follows the history whatever they return is forwarded too.
        """
        started = time.perf_counter()
        live = self._live()
        check_tools(request.tools)
        built = live.prompts.build(request, generation_prompt=False, awaiting=awaiting)
        row = GenerateRequest(
            prompt_ids=built.ids,
            sampling=live.limited(request.sampling, len(built.ids)),
            namespace=request.namespace,
            snapshots_at=built.snapshots_at,
            prefill_only=True,
        )
        return self._submit(live, request, built, row, started)

    def export_turn(self, handle: str, *, namespace: str = "") -> str | None:
        """One recorded call as compact JSON text, for a process that goes on with it later.

        It holds what the call adds to the one before, so its size does not grow with the history:
        store it with the reply, one text for each handle. None: the call is not known (any more).
        """
        state = self._state
        return state.prompts.turns.export(handle, namespace) if state else None

    def import_turns(self, texts: Iterable[str], *, namespace: str = "") -> int:
        """Take what `export_turn` wrote; afterwards prompts have the exact ids of that process.

        Texts may come in any order and more than once. Returns how many of them are known now.
        One of another model, tokenizer, template or namespace, an altered or torn one, and one
        whose earlier calls are missing is a miss: a line in the log, and its reply is tokenized
        from its text.
        """
        live = self._live()
        vocabulary = text_config(live.loaded.model).vocab_size
        return live.prompts.turns.take(texts, namespace, vocabulary)

    def head_of(self, handle: str) -> ChatRequest | None:
        """How the call behind a reply began: its request, of whose messages only the system
        messages at the start are left. With it a side call can fork that conversation. None: the
        reply was not made by this engine, or not lately.
        """
        return self._recorder.head_of(handle)

    @property
    def last_report(self) -> CacheReport | None:
        """The report of the call that finished last."""
        return self._recorder.last

    def reports(self) -> list[CacheReport]:
        """Reports of finished calls, oldest first, the last 1,000."""
        return self._recorder.all()

    def stats(self) -> EngineStats:
        core, cache = self._live().tokens.stats()
        return EngineStats.of(self._recorder.totals(), core, cache)

    def clear(self) -> None:
        """Drop all kept tokens that no running call uses. Transcripts stay."""
        self._live().tokens.clear()

    def forget(self, *, namespace: str) -> None:
        """Drop all that is kept of a namespace, and what reports quote; end its calls first."""
        live = self._live()
        live.tokens.forget(namespace)
        live.prompts.forget(namespace)
        self._recorder.forget(namespace)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End the engine thread, free every buffer and give the model back. Safe to repeat."""
        with self._lock:
            self._closed = True
            self._state = None
            finalizer, self._finalizer = self._finalizer, None
        if finalizer is not None:
            finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # frameworks copy models freely; weights and keys exist once

    def __reduce__(self) -> Any:
        """By name: in this process the open engine, elsewhere one that loads when it is needed."""
        if isinstance(self._source, ModelSource):
            return Engine._named, (self._source, self.config)
        raise TypeError(
            "an Engine over loaded objects cannot be pickled; build it in the process that uses "
            "it, or open it with Engine.from_pretrained"
        )

    def __repr__(self) -> str:
        state = "closed" if self._closed else "loaded" if self._state else "not loaded"
        return f"Engine({self.model_name!r}, {state})"

    def _live(self) -> LoadedEngine:
        with self._lock:
            if self._closed:
                raise EngineClosed("the engine is closed; create a new Engine")
            if self._state is None:
                source = self._source
                loaded = source.load() if isinstance(source, ModelSource) else source
                self._state = LoadedEngine(loaded, self.config)
                # Runs once, in `close` or when the engine is collected; holds the weights so long.
                self._finalizer = weakref.finalize(self, self._state.tokens.close)
            return self._state

    def _submit(
        self,
        live: LoadedEngine,
        request: ChatRequest,
        built: BuiltPrompt,
        generate: GenerateRequest,
        started: float,
        deadline: Deadline | None = None,
    ) -> Call:
        parser = parser_for(request, live.prompts.dialect, built)
        if generate.prefill_only:
            finish, leave = self._recorder.prefill_callbacks(built, request)
        else:
            finish, leave = self._recorder.callbacks(live.prompts, built, request)
        decoder = live.prompts.decoder()
        one_call = request.parallel_tool_calls is False
        reply = Reply(decoder, parser, finish, leave, one_call=one_call, raw=request.raw_text)
        running = live.tokens.submit(generate, started=started)
        return Call(running, reply, owner=self, deadline=deadline)


_SHARED: SharedEngines[Engine] = SharedEngines()
