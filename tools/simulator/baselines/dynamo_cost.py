"""NVIDIA Dynamo's KV router, reimplemented from its published cost function (ai-dynamo/dynamo, lib/kv-router at
07a6c9ce and docs/components/router).

    cost = prefill_load_scale · max((active prefill tokens + prompt) / block − overlap, 0) + decode blocks

Defaults: scale 1, device overlap credit 1, temperature 0 (exact ties at random), queue off, output blocks not counted.
A choice is booked at once: uncached prefill tokens count until the first token, blocks until the end, shared blocks
once. KV events update the index; here, none is late or lost. Queue off is the default of the current documentation
(057096c3). Release 1.1 and 0243c51b held requests back above a threshold of prefill tokens; this is not modelled.

`DynamoRejecting` has its documented request rejection on (docs/fault-tolerance/request-rejection.md at 0aa1dccb): a
worker is busy above either threshold; a request goes to one that is not, and is refused if all are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from engines.drivers.base import Load
from tools.simulator.baselines.rule import KvRule, Request


class DynamoCost(KvRule):
    """Chooses the worker with the lowest cost by Dynamo's formula."""

    def prepare(self, workers: int, source: random.Random) -> None:
        super().prepare(workers, source)
        self._active: list[Counter[bytes]] = [Counter() for _ in range(workers)]
        """Blocks of the sequences on a worker, with the number of sequences that share each."""
        self._tails = [0] * workers
        """Partial last blocks, never shared."""
        self._prefill_tokens = [0.0] * workers
        self._booked: dict[Request, float] = {}

    def choose(self, request: Request, now: float) -> int | None:
        return self.cheapest(request, range(len(self.index)))

    def cheapest(self, request: Request, allowed: Sequence[int]) -> int:
        """Book and return the allowed worker with the lowest cost."""
        size = request.block_tokens
        lowest = float("inf")
        ties: list[tuple[int, int]] = []
        for worker in allowed:
            overlap = self.overlap(worker, request)
            prefill = max((self._prefill_tokens[worker] + request.prompt_tokens) / size - overlap, 0.0)
            active = self._active[worker]
            fresh = sum(block not in active for block in request.blocks)
            cost = prefill + len(active) + self._tails[worker] + fresh + 1
            if cost < lowest:
                lowest, ties = cost, [(worker, overlap)]
            elif cost == lowest:
                ties.append((worker, overlap))
        worker, overlap = self.source.choice(ties)
        uncached = max(request.prompt_tokens - overlap * size, 0.0)
        self._booked[request] = uncached
        self._prefill_tokens[worker] += uncached
        self._active[worker].update(request.blocks)
        self._tails[worker] += 1
        return self.take(worker)

    def first_token(self, worker: int, request: Request) -> None:
        self._prefill_tokens[worker] -= self._booked.pop(request, 0.0)

    def ended(self, worker: int, request: Request) -> None:
        super().ended(worker, request)
        self.first_token(worker, request)
        active = self._active[worker]
        self._tails[worker] -= 1
        for block in request.blocks:
            if active[block] == 1:
                del active[block]
            else:
                active[block] -= 1


BUSY_DECODE_BLOCKS = 0.85
"""--active-decode-blocks-threshold in its documentation's example: share of the KV memory that requests hold."""


class DynamoRejecting(DynamoCost):
    """busy_prefill_tokens: --active-prefill-tokens-threshold, counted here; decode blocks are the last poll's."""

    def __init__(self, busy_prefill_tokens: float) -> None:
        self._busy_prefill_tokens = busy_prefill_tokens

    def prepare(self, workers: int, source: random.Random) -> None:
        super().prepare(workers, source)
        self._used = [0.0] * workers

    def choose(self, request: Request, now: float) -> int | None:
        idle = [
            worker
            for worker, tokens in enumerate(self._prefill_tokens)
            if tokens <= self._busy_prefill_tokens and self._used[worker] <= BUSY_DECODE_BLOCKS
        ]
        return self.cheapest(request, idle) if idle else None

    def polled(self, worker: int, load: Load) -> None:
        self._used[worker] = load.used_tokens / load.capacity_tokens if load.capacity_tokens else 0.0
