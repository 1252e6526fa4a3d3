"""Ordinary load balancers without a queue or admission, like a generic proxy in front of engines."""

from __future__ import annotations

import bisect
import random

import xxhash

from tools.simulator.baselines.rule import Request, Rule

RING_POINTS = 150


class PlainRoundRobin(Rule):
    """Each worker in turn."""

    _turn = -1

    def choose(self, request: Request, now: float) -> int:
        self._turn = (self._turn + 1) % len(self.in_flight)
        return self.take(self._turn)


class PlainLeastLoad(Rule):
    """Fewest requests in flight."""

    def choose(self, request: Request, now: float) -> int:
        return self.take(self.least())


class PlainConsistentHash(Rule):
    """A ring keyed by the session, else by the prompt's first block; no bound on load."""

    def prepare(self, workers: int, source: random.Random) -> None:
        super().prepare(workers, source)
        points = [
            (xxhash.xxh3_64_intdigest(f"{worker}#{point}".encode()), worker)
            for worker in range(workers)
            for point in range(RING_POINTS)
        ]
        points.sort()
        self._points = [point for point, _ in points]
        self._workers = [worker for _, worker in points]

    def choose(self, request: Request, now: float) -> int:
        # two blocks: nearly all prompts of a real trace share the first one, the system prompt
        key = request.session_id.encode() or b"".join(request.blocks[:2])
        at = bisect.bisect(self._points, xxhash.xxh3_64_intdigest(key)) % len(self._points)
        return self.take(self._workers[at])
