"""llm-d's scheduler with its sample of precise prefix scoring, reimplemented from its scorers' descriptions
(llm-d/llm-d-inference-scheduler at 17d999e0, deploy/config/epp-precise-prefix-cache-config.yaml).

    score = 2 · prefix + 1 · (1 − KV utilization) + 1 · queue + 1 · active requests

prefix: cached blocks, scaled from the fewest to the most among workers that hold any. queue: waiting requests on the
same scale, fewest best. active requests: 1 if idle, else (most − own) / most. Ties are random. KV events are never late
or lost here; utilization and queues are from the last poll, every 1 s here and 20 times as often in llm-d. The sample
leaves active requests out; without them, polls that old send every request to the same worker.

Its latency prediction, SLO admission and flow control, which limit overload, are not modelled.
"""

from __future__ import annotations

import random

from engines.drivers.base import Load
from tools.simulator.baselines.rule import KvRule, Request

PREFIX_WEIGHT = 2.0


class LlmD(KvRule):
    """Chooses the worker with the highest score."""

    def prepare(self, workers: int, source: random.Random) -> None:
        super().prepare(workers, source)
        self._loads = [Load()] * workers

    def choose(self, request: Request, now: float) -> int:
        prefixes = self._prefixes(request)
        queues = [load.waiting for load in self._loads]
        shortest, longest = min(queues), max(queues)
        busiest = max(self.in_flight)
        highest, ties = -1.0, []
        for worker, load in enumerate(self._loads):
            used = load.used_tokens / load.capacity_tokens if load.capacity_tokens else 0.0
            queue = (longest - load.waiting) / (longest - shortest) if longest > shortest else 1.0
            active = self.in_flight[worker]
            score = (
                PREFIX_WEIGHT * prefixes[worker] + 1 - used + queue + ((busiest - active) / busiest if active else 1)
            )
            if score > highest:
                highest, ties = score, [worker]
            elif score == highest:
                ties.append(worker)
        return self.take(self.source.choice(ties))

    def _prefixes(self, request: Request) -> list[float]:
        overlaps = [self.overlap(worker, request) for worker in range(len(self.index))]
        held = [overlap for overlap in overlaps if overlap]
        if not held:
            return [0.0] * len(overlaps)
        fewest, most = min(held), max(held)
        if fewest == most:
            return [float(overlap > 0) for overlap in overlaps]
        return [max(overlap - fewest, 0) / (most - fewest) for overlap in overlaps]

    def polled(self, worker: int, load: Load) -> None:
        self._loads[worker] = load
