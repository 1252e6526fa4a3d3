"""Remembers the prompt that engines last computed for each file, and measures how much of it the file's next request
finds cached.

It keeps only block hashes of prompts and digests of files. A gateway knows only its own requests: if a file's requests
reach several gateways, gaps look longer and shares smaller than they are, never better.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from contracts.desired_state import KvObjective
from contracts.lease import Engine
from contracts.prefix import BLOCK_TOKENS, HASH_BYTES
from contracts.usage import Usage
from gateway.observability.file_metrics import FileMetrics, Kv
from gateway.serving.observers import RequestObserver
from gateway.wire.prepared import Prepared

if TYPE_CHECKING:
    from gateway.serving.attempt import Attempt

LIMIT_BYTES = 16 * 1024 * 1024
"""Limit of the history, about 7,000 files of 8,000 tokens. The least recently requested files are dropped."""
ENTRY_BYTES = 400
"""Approximate size of an entry without its hashes."""


class Computed(msgspec.Struct, frozen=True):
    """A file's newest prompt that an engine has, or had, in memory."""

    hashes: bytes
    """Hashes of tokens (`contracts.prefix`); empty if its engine received text."""
    replica_id: str
    placed_s: float
    ended_s: float
    """Times on the history's clock."""


class Placing(msgspec.Struct, frozen=True):
    """The state of a request's file at the request's placement."""

    at_s: float
    before: Computed | None
    """The file's previous state; None if it is unknown."""


class FileHistory(RequestObserver):
    """A history of files, bounded and in memory. objective: returns a pool's objective. clock: monotonic seconds."""

    def __init__(
        self,
        metrics: FileMetrics,
        objective: Callable[[str], KvObjective],
        clock: Callable[[], float] = time.monotonic,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        self._metrics = metrics
        self._objective = objective
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._files: OrderedDict[tuple[str, bytes], Computed] = OrderedDict()
        """Newest prompts by model, with its adapter, and file."""
        self._bytes = 0
        self._reporting: set[str] = set()
        """Pools whose engines have reported cached tokens. Without any report, zero means unknown."""

    def __len__(self) -> int:
        return len(self._files)

    def placed(self, attempt: Attempt, engine: Engine) -> None:
        """Remember the file's state when a customer's request is placed."""
        if attempt.request.purpose is None:
            attempt.placing = self.placing(attempt.request.prepared)

    def attempted(self, attempt: Attempt) -> None:
        """Remember the prompt if the engine has computed it."""
        if attempt.placing is not None and attempt.engine is not None and attempt.first_event_seen:
            self.computed(attempt.request.prepared, attempt.placing, attempt.engine, attempt.engine_usage)

    def placing(self, prepared: Prepared) -> Placing | None:
        """The file's state at the request's placement; None if the request has no file."""
        if not prepared.file:
            return None
        return Placing(self._clock(), self._files.get((prepared.generation.public_model, prepared.file)))

    def computed(self, prepared: Prepared, placing: Placing, engine: Engine, usage: Usage) -> None:
        """Record that the engine has computed the prompt. usage: its report, without which nothing is recorded."""
        if not usage.prompt_tokens:
            return
        if usage.cached_tokens:
            self._reporting.add(engine.pool)
        if placing.before is not None and not prepared.warm_up and engine.pool in self._reporting:
            model = prepared.generation.model
            self._metrics.prefilled_again(model, max(usage.prompt_tokens - usage.cached_tokens, 0))
            hashes = _token_hashes(prepared)
            if (kv := became(placing.before, hashes, engine.replica_id, usage)) is not None:
                gap_s = placing.at_s - placing.before.ended_s
                self._metrics.gap(engine.pool, kv, gap_s, self._objective(engine.pool))
        self._remember(prepared, Computed(_token_hashes(prepared), engine.replica_id, placing.at_s, self._clock()))

    def _remember(self, prepared: Prepared, computed: Computed) -> None:
        key = prepared.generation.public_model, prepared.file
        known = self._files.pop(key, None)
        if known is not None:
            self._bytes -= len(known.hashes) + ENTRY_BYTES
            if known.placed_s > computed.placed_s:
                computed = known  # this request was superseded, and took longer to end
        self._files[key] = computed
        self._bytes += len(computed.hashes) + ENTRY_BYTES
        while self._bytes > self._limit_bytes:
            _, oldest = self._files.popitem(last=False)
            self._bytes -= len(oldest.hashes) + ENTRY_BYTES


def became(before: Computed, hashes: bytes, replica_id: str, usage: Usage) -> Kv | None:
    """What became of two prompts' common blocks in the engine's cache; None if the prompts share none.

    An engine always computes a prompt's last token, so a block that ends with it does not count.
    """
    shared_tokens = shared_blocks(before.hashes, hashes) * BLOCK_TOKENS
    shared_tokens = min(shared_tokens, (usage.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS)
    if shared_tokens <= 0:
        return None
    if usage.cached_tokens >= shared_tokens:
        return "kept"
    return "evicted" if replica_id == before.replica_id else "moved"


def shared_blocks(one: bytes, other: bytes) -> int:
    """Number of equal hashes with which two chains begin. A hash covers all earlier blocks: binary search works."""
    low, high = 0, min(len(one), len(other)) // HASH_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        block = slice((middle - 1) * HASH_BYTES, middle * HASH_BYTES)
        if one[block] == other[block]:
            low = middle
        else:
            high = middle - 1
    return low


def _token_hashes(prepared: Prepared) -> bytes:
    return prepared.chain.hashes if prepared.chain.kind == "tokens" else b""
