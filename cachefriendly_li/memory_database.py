"""`Memory` on state diffs: blocks go to the newest user turn, old turns are flushed rarely."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from llama_index.core.base.llms.types import ChatMessage, ContentBlock
from llama_index.core.bridge.pydantic import Field, PrivateAttr, SerializationInfo, model_serializer
from llama_index.core.llms.llm import LLM
from llama_index.core.memory.memory import (
    DEFAULT_FLUSH_SIZE,
    DEFAULT_MEMORY_BLOCKS_TEMPLATE,
    DEFAULT_TOKEN_LIMIT,
    BaseMemoryBlock,
    InsertMethod,
    generate_chat_store_key,
)
from llama_index.core.prompts import RichPromptTemplate
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from pydantic import ModelWrapValidatorHandler, SerializerFunctionWrapHandler, model_validator
from sqlalchemy.ext.asyncio import AsyncEngine

from cachefriendly.errors import ConfigError
from cachefriendly.window import TRIM_TO, share_of, window_start
from cachefriendly_li import memory_tail
from cachefriendly_li.db_store import StateDiffDBChatStore, StoredMessage
from cachefriendly_li.memory_blocks import dump_blocks, give_llm, hand_over, load_blocks
from cachefriendly_li.memory_live import LIVE_KEY, Live
from cachefriendly_li.memory_queue import Queue, queue_of
from cachefriendly_li.memory_store import dump_store, load_store, store_for
from cachefriendly_li.memory_sync import SyncMemory
from cachefriendly_li.memory_tokens import MessageCounter, counted_text, is_default, tokenizer_of
from cachefriendly_li.memory_window import begins_turn, portions

__all__ = ["Memory"]

# What another chat store than ours may hold, for an LLM that reads it.
_MEDIA: Final = frozenset({"image", "audio", "video", "document"})
_FIELDS_ALONE: Final = {"fields": "alone"}
_KEPT_ELSEWHERE = {"memory_blocks", "memory_blocks_template", "tokenizer_fn", "sql_store"}


class Memory(SyncMemory):
    """LlamaIndex's `Memory` with the same arguments, in memory or in an SQLite file.

    **Placement** (``layout="tail"``). What memory blocks say goes before the newest user message
    and stays there in later turns; only blocks that changed since they were last said are said
    again, so a changed block costs its own tokens. Each user turn is given its blocks once, at
    the first `get` that sees it. ``layout="stock"`` is LlamaIndex's own placement, as
    ``insert_method`` says: a changed block then moves everything behind the system message.

    **Flushing.** When the history outgrows its share of ``token_limit``, the oldest turns are
    archived and handed to the blocks until half of it is used (``trim_to``), at least
    ``token_flush_size`` tokens; blocks get them in portions of that size.

    ``async_database_uri`` of an SQLite file, or ``path``, keeps state diffs there; ``chat_store``
    takes any `AsyncDBChatStore`. With ``llm`` tokens are counted by the engine's tokenizer.
    """

    sql_store: AsyncDBChatStore = Field(default_factory=StateDiffDBChatStore, exclude=True)
    layout: Literal["tail", "stock"] = "tail"
    trim_to: float = Field(default=TRIM_TO, gt=0, le=1)

    _counter: MessageCounter = PrivateAttr(default_factory=MessageCounter)
    _live: Live = PrivateAttr(default_factory=Live)
    _queue_cache: Queue | None = PrivateAttr(default=None)
    _offered: int | None = PrivateAttr(default=None)
    _locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = PrivateAttr(
        default_factory=weakref.WeakKeyDictionary
    )

    @classmethod
    def from_defaults(  # type: ignore[override]  # noqa: PLR0913, PLR0917 - LlamaIndex's signature
        cls,
        session_id: str | None = None,
        chat_history: list[ChatMessage] | None = None,
        token_limit: int = DEFAULT_TOKEN_LIMIT,
        memory_blocks: list[BaseMemoryBlock[Any]] | None = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        chat_history_token_ratio: float = 0.7,
        token_flush_size: int = DEFAULT_FLUSH_SIZE,
        memory_blocks_template: RichPromptTemplate = DEFAULT_MEMORY_BLOCKS_TEMPLATE,
        insert_method: InsertMethod = InsertMethod.SYSTEM,
        image_token_size_estimate: int = 256,
        audio_token_size_estimate: int = 256,
        video_token_size_estimate: int = 256,
        chat_store: AsyncDBChatStore | None = None,
        table_name: str = "llama_index_memory",
        async_database_uri: str | None = None,
        async_engine: AsyncEngine | None = None,
        db_schema: str | None = None,
        *,
        path: str | Path | None = None,
        llm: LLM | None = None,
        layout: Literal["tail", "stock"] = "tail",
        trim_to: float = TRIM_TO,
    ) -> Memory:
        """Create a memory.

        Raises:
            ConfigError: ``path`` is given beside another place to keep messages.
        """
        if path is not None:
            if chat_store or async_database_uri or async_engine:
                raise ConfigError("give path= or another store, not both")
            chat_store = StateDiffDBChatStore(path, table_name=table_name)
        session_id = session_id or generate_chat_store_key()
        store = chat_store or store_for(async_database_uri, async_engine, table_name, db_schema)
        memory = cls(
            token_limit=token_limit,
            tokenizer_fn=tokenizer_fn or tokenizer_of(llm),
            sql_store=store,
            session_id=session_id,
            memory_blocks=memory_blocks or [],
            chat_history_token_ratio=chat_history_token_ratio,
            token_flush_size=token_flush_size
            if token_flush_size <= token_limit
            else int(token_limit * 0.7),
            memory_blocks_template=memory_blocks_template,
            insert_method=insert_method,
            image_token_size_estimate=image_token_size_estimate,
            audio_token_size_estimate=audio_token_size_estimate,
            video_token_size_estimate=video_token_size_estimate,
            layout=layout,
            trim_to=trim_to,
        )
        if chat_history is not None:
            memory.set(chat_history)
        return memory

    def use_llm(self, llm: LLM) -> None:
        """Count, and extract facts, with this LLM, unless the memory was given another: after
        JSON it has none where it comes back in another process."""
        if is_default(self.tokenizer_fn):
            self.tokenizer_fn = tokenizer_of(llm)
        give_llm(self.memory_blocks, llm)

    @property
    def _queue(self) -> Queue:
        if self._queue_cache is None:
            self._queue_cache = queue_of(self.sql_store)
        return self._queue_cache

    # -- what is sent -------------------------------------------------------------------------

    async def aget(
        self, input: str | ChatMessage | None = None, **block_kwargs: Any
    ) -> list[ChatMessage]:
        if self.layout == "stock":
            return await super().aget(input, **block_kwargs)
        stored = await self._queue.stored(self.session_id)
        turn = memory_tail.open_turn(stored, self._offered)
        if turn is not None and self.memory_blocks:
            told = await self._told(stored, input, block_kwargs)
            self._offered = stored[turn].seq
            if told is not None:
                seq, chat = stored[turn].seq, stored[turn].chat
                stored[turn] = StoredMessage(seq, chat, told.note())
                await self._queue.note(self.session_id, seq, told.note())
        return [memory_tail.as_told(message) for message in stored]

    async def _told(
        self, stored: Sequence[StoredMessage], input: Any, block_kwargs: dict[str, Any]
    ) -> memory_tail.Told | None:
        history = [message.chat for message in stored]
        if isinstance(input, ChatMessage):  # LlamaIndex hands on strings alone
            history, input = [*history, input], None
        contents = await self._get_memory_blocks_content(history, input=input, **block_kwargs)
        counts = await asyncio.to_thread(self._counts, stored)
        sizes = await asyncio.to_thread(
            lambda: [self._estimate_token_count(content) for content in contents.values()]
        )
        kept = await self._truncate_memory_blocks(contents, sum(sizes), sum(counts))
        dropped = [name for name in contents if not kept.get(name)]
        kept = {name: content for name, content in kept.items() if content}
        fresh = memory_tail.fresh_blocks(kept, memory_tail.said_before(stored), dropped)
        names = [block.name for block in self.memory_blocks]
        if not fresh:
            return None
        return memory_tail.memory_text(fresh, names, self.memory_blocks_template)

    # -- what is kept -------------------------------------------------------------------------

    async def aput(self, message: ChatMessage) -> None:
        await self.aput_messages([message])

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        async with self._lock():
            await self.sql_store.add_messages(self.session_id, messages)
            await self._manage_queue()

    async def aset(self, messages: list[ChatMessage]) -> None:
        await super().aset(messages)
        self._offered = None

    async def areset(self, status: MessageStatus | None = None) -> None:
        await super().areset(status)
        self._offered = None

    async def aedit_newest(self, message: ChatMessage) -> None:
        """Put ``message`` in the place of the newest one; memory that stands before it stays."""
        async with self._lock():
            stored = await self._queue.stored(self.session_id)
            if stored and stored[-1].chat != message:
                await self._queue.edit(self.session_id, stored[-1].seq, message)

    async def areplace_newest(self, message: ChatMessage | None) -> None:
        """Put ``message``, or nothing, in the place of the newest one and of what stands before it;
        archived messages stay archived."""
        async with self._lock():
            queue, key = self._queue, self.session_id
            newest = (await queue.stored(key))[-1]
            if message is None:
                await queue.drop(key, newest.seq)
                return
            await queue.edit(key, newest.seq, message)
            if newest.note:
                await queue.note(key, newest.seq, {})

    def _lock(self) -> asyncio.Lock:
        """One for each event loop: the sync methods make a loop of their own for every call."""
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())

    async def _manage_queue(self) -> None:
        """Archive the oldest turns when the history is too long, and hand them to the blocks."""
        stored = await self._queue.stored(self.session_id)
        counts = await asyncio.to_thread(self._counts, stored)
        limit = int(self.token_limit * self.chat_history_token_ratio)
        if sum(counts) <= limit:
            return
        target = min(share_of(limit, self.trim_to), max(limit - self.token_flush_size, 0))
        starts = [begins_turn(message.chat) for message in stored]
        first = window_start(counts, starts, limit, target)
        if first == 0:
            return  # the newest turn is never cut
        gone = await self._queue.archive_until(self.session_id, stored[first - 1].seq)
        for portion in portions(gone, counts, self.token_flush_size):
            await hand_over(portion, self.memory_blocks, self.session_id)

    def _counts(self, stored: Sequence[StoredMessage]) -> list[int]:
        told = [memory_tail.as_told(message) for message in stored]
        return [self._estimate_token_count(message) for message in told]

    def _estimate_token_count(
        self, message_or_blocks: str | ChatMessage | list[ChatMessage] | list[ContentBlock]
    ) -> int:
        """Of a message what stands in a prompt, media by LlamaIndex's estimates; LlamaIndex adds
        its additional_kwargs and leaves out its calls."""
        if not isinstance(message_or_blocks, ChatMessage):
            return super()._estimate_token_count(message_or_blocks)
        text = counted_text(message_or_blocks)
        media = [block for block in message_or_blocks.blocks if block.block_type in _MEDIA]
        beside = super()._estimate_token_count(media) if media else 0
        return self._counter.texts([text], self.tokenizer_fn)[0] + beside

    # -- as JSON ------------------------------------------------------------------------------

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Plain JSON: settings, the session's diffs or where they are, and what blocks know."""
        own = None if is_default(self.tokenizer_fn) else self.tokenizer_fn
        stored = dump_store(self.sql_store, self.session_id)
        self._live = self._live.holding(
            own,
            blocks=tuple(self.memory_blocks),
            store=None if isinstance(self.sql_store, StateDiffDBChatStore) else self.sql_store,
        )
        data: dict[str, Any] = self.model_dump(
            mode="json", exclude=_KEPT_ELSEWHERE, context=_FIELDS_ALONE, **kwargs
        )
        if self.memory_blocks_template is not DEFAULT_MEMORY_BLOCKS_TEMPLATE:
            data["memory_blocks_template"] = self.memory_blocks_template.template_str
        data["store"] = stored
        data["memory_blocks"] = dump_blocks(self.memory_blocks)
        return {**data, "offered": self._offered, LIVE_KEY: self._live.name}

    def to_string(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)

    # A memory inside another model, such as a workflow's event, is dumped and read by pydantic.

    @model_serializer(mode="wrap")
    def custom_model_dump(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        if info.context is _FIELDS_ALONE or info.mode != "json":
            return super().custom_model_dump(handler, info)
        return self.to_dict()

    @model_validator(mode="wrap")
    @classmethod
    def _from_json(cls, value: Any, handler: ModelWrapValidatorHandler[Memory]) -> Memory:
        stored = isinstance(value, Mapping) and LIVE_KEY in value
        return cls.from_dict(dict(value)) if stored else handler(value)

    @classmethod
    def from_dict(cls, data: dict[str, Any], **kwargs: Any) -> Memory:
        """Inverse of `to_dict`.

        Tokenizer, LLM and blocks that hold other objects are not stored: within one process they
        are found again, in another one pass ``llm=``, ``tokenizer_fn=``, ``memory_blocks=``.

        Raises:
            RequestError: a block or the chat store is not to be had.
        """
        live = Live.named(data.get(LIVE_KEY))
        given = {key: kwargs.get(key) for key in ("tokenizer_fn", "llm", "chat_store")}
        names = {"store", "memory_blocks", "memory_blocks_template", "offered", LIVE_KEY}
        values = {k: v for k, v in data.items() if k not in names and k in cls.model_fields}
        if "memory_blocks_template" in data:
            values["memory_blocks_template"] = RichPromptTemplate(data["memory_blocks_template"])
        blocks = kwargs.get("memory_blocks") or live.blocks
        memory = cls(
            **values,
            tokenizer_fn=given["tokenizer_fn"] or live.tokenizer or tokenizer_of(given["llm"]),
            sql_store=given["chat_store"] or load_store(data.get("store"), live.store),
            memory_blocks=load_blocks(data.get("memory_blocks", []), blocks, given["llm"]),
        )
        memory._live, memory._offered = live, data.get("offered")
        return memory

    @classmethod
    def from_string(cls, json_str: str, **kwargs: Any) -> Memory:
        return cls.from_dict(json.loads(json_str), **kwargs)

    def __reduce__(self) -> Any:
        return type(self).from_dict, (self.to_dict(),)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Memory:
        return type(self).from_dict(self.to_dict())
