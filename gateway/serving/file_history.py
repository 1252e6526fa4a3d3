"""Remembers the prompt that engines last computed for each file, and how much of it the file's next request finds.

Only block hashes of prompts and digests of files are kept. A gateway knows its own requests: if a file's requests reach
several gateways, each sees a part, so that gaps look longer and shares smaller than they are, never better.
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
"""Some 7,000 files of 8,000 tokens; the least recently requested are forgotten."""
ENTRY_BYTES = 400
"""Approximate size of an entry without its hashes."""


class Computed(msgspec.Struct, frozen=True):
    """A file's newest prompt that an engine has in memory, or had."""

    hashes: bytes
    """Hashes of tokens (`contracts.prefix`); empty: its engine got text."""
    replica_id: str
    placed_s: float
    ended_s: float
    """Times on the history's clock."""


class Placing(msgspec.Struct, frozen=True):
    """A request at the moment it was given an engine."""

    at_s: float
    before: Computed | None
    """The file's previous state; None: unknown."""


class FileHistory(RequestObserver):
    """Bounded, in memory. objective: of a pool. clock: monotonic seconds."""

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
        """By model, with its adapter, and file."""
        self._bytes = 0
        self._telling: set[str] = set()
        """Pools whose engines have reported cached tokens: without any report, zero means unknown."""

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
        """The file's state as the request gets an engine; None: it is in no file."""
        if not prepared.file:
            return None
        return Placing(self._clock(), self._files.get((prepared.generation.public_model, prepared.file)))

    def computed(self, prepared: Prepared, placing: Placing, engine: Engine, usage: Usage) -> None:
        """The engine has computed the prompt. usage: its report; without one nothing is learnt."""
        if not usage.prompt_tokens:
            return
        if usage.cached_tokens:
            self._telling.add(engine.pool)
        if placing.before is not None and not prepared.warm_up and engine.pool in self._telling:
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
                computed = known  # this one was superseded, and has taken longer to end
        self._files[key] = computed
        self._bytes += len(computed.hashes) + ENTRY_BYTES
        while self._bytes > self._limit_bytes:
            _, oldest = self._files.popitem(last=False)
            self._bytes -= len(oldest.hashes) + ENTRY_BYTES


def became(before: Computed, hashes: bytes, replica_id: str, usage: Usage) -> Kv | None:
    """The part that the engine still had of two prompts' common blocks; None: they share none.

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
    """Number of equal hashes with which two chains begin: a hash covers all blocks before it, so a binary search finds
    the last."""
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
