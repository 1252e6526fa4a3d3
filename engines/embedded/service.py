"""The engine for the HTTP handlers, with live requests by id, admission to the queue, readiness and draining."""

from __future__ import annotations

import asyncio
import functools
import logging
from pathlib import Path

from contracts.errors import ConfigError, ContextTooLong, Draining, EngineFailed, InvalidField, Overloaded
from engines.embedded.build import build_engine
from engines.embedded.config import EngineConfig
from engines.embedded.device import decided
from engines.embedded.engine import Engine
from engines.embedded.grammar.compiler import GrammarCompiler
from engines.embedded.history import UsageHistory
from engines.embedded.live import LiveRequest
from engines.embedded.lora.adapter import Adapter
from engines.embedded.lora.adapters import Adapters
from engines.embedded.models.config import ModelConfig
from engines.embedded.output import Delta
from engines.embedded.pooling import Pooling
from engines.embedded.preparation import Preparation
from engines.embedded.request import Request
from engines.embedded.sampling_defaults import sampling_defaults
from engines.embedded.worker import EngineWorker
from engines.gguf.file import SUFFIX
from engines.tokenizer.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class Service:
    """One model on one engine thread. The class runs on the event loop."""

    def __init__(self, config: EngineConfig) -> None:
        """Reads the small files of the model folder; `start` loads the rest. Raises ConfigError if they are invalid."""
        folder = Path(config.model)
        self.config = config = decided(config)
        self.name = config.name or folder.resolve().name.removesuffix(SUFFIX)
        self.model = ModelConfig.read(folder)
        self.pooling = Pooling.read(folder)
        """How the model computes vectors; None if it generates text."""
        if self.pooling is None and self.model.headless:
            raise ConfigError(
                f"{folder / 'config.json'}: architectures: the model has no head to generate text with, and the folder "
                "has no modules.json that says how to make vectors",
                param="architectures",
            )
        if self.pooling is not None and config.speculation.method not in ("auto", "off"):
            raise ConfigError(
                f"engine.speculation.method: {config.speculation.method!r}; a model that makes vectors drafts nothing, "
                "leave it out",
                param="engine.speculation.method",
            )
        self.context_tokens = min(
            config.context_tokens or self.model.max_position_embeddings, self.model.max_position_embeddings
        )
        self.sampling_defaults = sampling_defaults(config)
        self.tokenizer = Tokenizer.load(folder)
        self.history = UsageHistory(config.usage_history)
        self.preparation = Preparation(self.history)
        self.grammars = GrammarCompiler(folder, self.model.vocab_size, self.tokenizer.end_ids, config.grammar)
        self.adapters = Adapters(config.lora, lambda adapter: bool(self._users(adapter)))
        self.live: dict[str, LiveRequest] = {}
        self.engine: Engine | None = None
        """The engine, once the model is loaded."""
        self.failure: BaseException | None = None
        self.draining = False
        self.stopped = asyncio.Event()
        """Set when the process should end, because the engine failed or draining is over."""
        self._idle = asyncio.Event()
        self._drain_task: asyncio.Task[None] | None = None
        build = functools.partial(build_engine, config, self.context_tokens, self.tokenizer)
        self._worker = EngineWorker(build, self._ready, self._deliver, self._fail)

    @property
    def ready(self) -> bool:
        """Whether a new request would be accepted."""
        return self.engine is not None and self.failure is None and not self.draining

    @property
    def unfinished_choices(self) -> int:
        """Number of sequences running or waiting."""
        return sum(live.request.choices for live in self.live.values())

    def start(self) -> None:
        """Load the model in the engine's thread. The grammar processes, which also need cores, start afterwards."""
        self._worker.start()

    def submit(self, request: Request) -> LiveRequest:
        """Pass a request to the engine.

        Raises Draining or Overloaded if no request is accepted now, EngineFailed if the engine failed, InvalidField for
        an id in use, and ContextTooLong if a prompt and its output do not fit.
        """
        if self.draining:
            raise Draining("The engine is shutting down.", retry_after_s=1.0)
        self._require_engine()
        for prompt in request.prompts:
            if len(prompt) + request.sampling.max_tokens > self.context_tokens:
                raise ContextTooLong(
                    limit_tokens=self.context_tokens,
                    prompt_tokens=len(prompt),
                    output_tokens=request.sampling.max_tokens,
                    param="max_tokens",
                )
        if request.rid in self.live:
            raise InvalidField(f"A request with the id {request.rid!r} is running.", param="rid")
        limit = self.config.scheduler.max_running + self.config.scheduler.max_queued
        if self.unfinished_choices + request.choices > limit and not self._is_within_share(request, limit):
            raise Overloaded(f"The queue is full ({limit} choices running or waiting).", retry_after_s=1.0)
        live = self.live[request.rid] = LiveRequest(request)
        self._worker.submit(request)
        return live

    def _is_within_share(self, request: Request, limit: int) -> bool:
        """Whether the request keeps its organization within its share of a queue that others have filled."""
        own, organizations = request.choices, {request.organization}
        for live in self.live.values():
            organizations.add(live.request.organization)
            own += live.request.choices if live.request.organization == request.organization else 0
        return len(organizations) > 1 and own * len(organizations) <= limit

    def abort(self, rid: str, *, prefix: bool = False) -> None:
        """End requests before the engine's next step, or within a long step. An unknown id may belong to a request that
        arrives after its abort."""
        preparing = self.preparation.abort(rid, prefix=prefix)
        known = preparing or rid in self.live or self.history.get(rid) is not None
        if rid and not known and not (prefix and any(own.startswith(rid) for own in self.live)):
            self.preparation.abort_ahead(rid)
        self._worker.abort(rid, prefix=prefix)

    async def flush_cache(self) -> bool:
        """Clear all cached prefixes; False while requests run or wait. Raises EngineFailed if the engine failed, and
        Overloaded before it is loaded."""
        self._require_engine()
        return await self._worker.ask(lambda engine: engine.flush_cache())

    async def load_adapter(self, name: str, path: str) -> Adapter:
        """Load and offer an adapter. Raises like `Adapters.load` and `flush_cache`."""
        adapter = await self.adapters.load(self._require_engine().model, name, path)
        logger.info("adapter %s: rank %d, %d bytes, from %s", name, adapter.rank, adapter.size_bytes, path)
        return adapter

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter, and return when no request uses it. Raises like `Adapters.unload`."""
        await self.adapters.unload(name, self._unused)
        logger.info("adapter %s is unloaded", name)

    async def _unused(self, adapter: Adapter) -> None:
        for live in self._users(adapter):
            await live.ended.wait()

    def _users(self, adapter: Adapter) -> list[LiveRequest]:
        return [live for live in self.live.values() if live.request.adapter is adapter]

    def _require_engine(self) -> Engine:
        if self.failure is not None:
            raise EngineFailed("The engine failed.", retry_after_s=1.0)
        if self.engine is None:
            raise Overloaded("The engine is not ready: its model is being loaded.", retry_after_s=1.0)
        return self.engine

    def stop(self) -> None:
        """Begin to drain: refuse new requests and those in preparation, let others finish for `drain_s`, abort the
        rest, and set `stopped`.

        A second call ends the drain at once.
        """
        if self.draining:
            self.stopped.set()
            return
        self.draining = True
        self.preparation.close()
        self._drain_task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        logger.info("draining: %d requests running", len(self.live))
        try:
            async with asyncio.timeout(self.config.drain_s):
                await self._none_live()
        except TimeoutError:
            self.abort("", prefix=True)
            await self._none_live()
        self.stopped.set()

    async def close(self) -> None:
        """End the engine's thread and all compilations."""
        self.grammars.close()
        await self._worker.stop()

    async def _none_live(self) -> None:
        if self.live:
            self._idle.clear()
            await self._idle.wait()

    def _ready(self, engine: Engine) -> None:
        self.engine = engine
        store = engine.store
        logger.info(
            "serving %s with a context of %d tokens: %d KV tokens in %d pages of %d, %d bytes per token",
            self.name,
            self.context_tokens,
            store.total_tokens,
            store.total_pages,
            store.page_tokens,
            store.token_bytes,
        )
        if not self.draining:
            self.grammars.start()

    def _deliver(self, deltas: list[Delta]) -> None:
        updated: dict[str, LiveRequest] = {}
        for delta in deltas:
            live = self.live.get(delta.rid)
            if live is None:
                continue
            live.put(delta)
            updated[delta.rid] = live
            if live.finished:
                self.history.put(delta.rid, live.usage())
                del self.live[delta.rid]
        for rid, live in updated.items():
            try:
                live.tell()
            except Exception:
                # the other requests of this step get their output
                logger.exception("request %s failed: its output cannot be formatted", rid)
                live.fail()
        if not self.live:
            self._idle.set()

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        for live in self.live.values():
            live.fail()
        self.live.clear()
        self._idle.set()
        self.stopped.set()
