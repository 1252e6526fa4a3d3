"""smg's `cache_aware` policy, reimplemented from its published rule (lightseekorg/smg at 73da68ca, model_gateway/src/
policies), in both modes: the approximate tree (HTTP) and the index of KV events (gRPC).

Defaults are those of its command line: cache_threshold 0.3, balance_abs 64, balance_rel 1.5, 2^26 characters per
worker's tree. Load is the number of requests in flight in this router, counted when the worker is chosen. It has no
queue unless one is configured. The tree works on blocks here instead of characters: the simulator has no text.

`SmgCapped` has its `--max-concurrent-requests` (off by default) and `--queue-size 0` (docs/concepts/reliability/
rate-limiting.md at 47fb5730): a request that finds no slot is refused with 429 at once. Only the limit on concurrency
is modelled: the bucket's refill, by default its capacity per second, would never bind at these loads. smg's queue is
first come, first served, and makes short prompts wait for long ones.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

from tools.simulator.baselines.rule import KvRule, Request, Rule

CACHE_THRESHOLD = 0.3
BALANCE_ABSOLUTE = 64
BALANCE_RELATIVE = 1.5
TREE_TOKENS = (1 << 26) // 4
"""2^26 characters at four per token."""
EVICTION_S = 120.0


class _Balanced(Rule):
    """The test that precedes the comparison of prefixes."""

    def imbalanced(self) -> bool:
        """Whether the gap in load is large in both absolute and relative terms."""
        most, fewest = max(self.in_flight), min(self.in_flight)
        return most - fewest > BALANCE_ABSOLUTE and most > BALANCE_RELATIVE * fewest


class SmgCacheAware(_Balanced):
    """The tree mode: prompts and their workers, remembered at routing time."""

    def prepare(self, workers: int, source: random.Random) -> None:
        super().prepare(workers, source)
        self._first: dict[bytes, int] = {}
        """Block to the worker that received it first and still holds it: the node's cached tenant."""
        self._held: list[OrderedDict[bytes, int]] = [OrderedDict() for _ in range(workers)]
        """The blocks of each worker with their tokens, least recently inserted first."""
        self._tokens = [0] * workers
        self._evict_at = EVICTION_S

    def choose(self, request: Request, now: float) -> int | None:
        return self.choose_among(request, range(len(self.in_flight)), now)

    def choose_among(self, request: Request, allowed: Sequence[int], now: float) -> int:
        """The rule among the allowed workers; a worker with the prefix that is not allowed is skipped."""
        self._evict(now)
        worker = self.least(allowed)
        if not self.imbalanced():
            matched, tenant = self._match(request)
            rate = matched * request.block_tokens / request.prompt_tokens if request.prompt_tokens else 0.0
            if rate > CACHE_THRESHOLD and tenant is not None and tenant in allowed:
                worker = tenant
        self._insert(worker, request)
        return self.take(worker)

    def _match(self, request: Request) -> tuple[int, int | None]:
        tenant: int | None = None
        for count, block in enumerate(request.blocks):
            owner = self._first.get(block)
            if owner is None:
                return count, tenant
            tenant = owner
        return len(request.blocks), tenant

    def _insert(self, worker: int, request: Request) -> None:
        held, tokens = self._held[worker], request.block_tokens
        # deepest first, so that the oldest entry is always a leaf
        for block in reversed(request.blocks):
            if block in held:
                held.move_to_end(block)
            else:
                held[block] = tokens
                self._tokens[worker] += tokens
                self._first.setdefault(block, worker)

    def _evict(self, now: float) -> None:
        if now < self._evict_at:
            return
        self._evict_at = now + EVICTION_S
        for worker, held in enumerate(self._held):
            while self._tokens[worker] > TREE_TOKENS:
                block, tokens = held.popitem(last=False)
                self._tokens[worker] -= tokens
                if self._first.get(block) == worker:
                    other = next((index for index, blocks in enumerate(self._held) if block in blocks), None)
                    if other is None:
                        del self._first[block]
                    else:
                        self._first[block] = other


class SmgCapped(SmgCacheAware):
    """The tree mode with the limit. places: requests that may be at engines at a time."""

    def __init__(self, places: int) -> None:
        self._places = places

    def choose(self, request: Request, now: float) -> int | None:
        return super().choose(request, now) if sum(self.in_flight) < self._places else None


class SmgKvEvents(_Balanced, KvRule):
    """The event mode: the engines' own caches decide, whatever the length of the overlap."""

    def choose(self, request: Request, now: float) -> int:
        if self.imbalanced():
            return self.take(self.least())
        overlaps = [self.overlap(worker, request) for worker in range(len(self.index))]
        # the first of equals
        best = max(
            (worker for worker, overlap in enumerate(overlaps) if overlap),
            key=lambda worker: (overlaps[worker], -self.in_flight[worker], -len(self.index[worker])),
            default=None,
        )
        return self.take(self.least() if best is None else best)
