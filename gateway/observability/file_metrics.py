"""Metrics of recomputation: how much of a file's prompt is computed again with each keystroke, and how long an engine
keeps it between keystrokes."""

from __future__ import annotations

import functools
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

from contracts.desired_state import KvObjective
from gateway.observability.loop_histogram import LoopHistogram

Kv = Literal["kept", "evicted", "moved"]
OUTCOMES: tuple[Kv, ...] = ("kept", "evicted", "moved")
GAP_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)
TOKEN_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 300, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536)


class FileMetrics:
    """Counters and histograms of one instance, in the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._prefilled_again = functools.cache(
            LoopHistogram(
                "slipstream_file_prefilled_again_tokens",
                "Prompt tokens that an engine computed for a gap in a file that the gateway already knew, by model.",
                ["model"],
                buckets=TOKEN_BUCKETS,
                registry=registry,
            ).labels
        )
        self._gaps = functools.cache(
            LoopHistogram(
                "slipstream_file_gap_seconds",
                "Time since the end of the previous request of the same file, by pool and by the fate of the part "
                "that both prompts have in common: kept, evicted, or moved (the request went to another replica, "
                "which did not have it).",
                ["pool", "kv"],
                buckets=GAP_BUCKETS_S,
                registry=registry,
            ).labels
        )
        self._survived = Counter(
            "slipstream_kv_survival",
            "Requests that arrived within the pool's kv_objective.within_s after the previous request of the same "
            "file, by pool and by the fate of the part that both prompts have in common: kept, evicted, moved.",
            ["pool", "kv"],
            registry=registry,
        )
        self._objective = Gauge(
            "slipstream_kv_survival_objective",
            "Share of the requests in slipstream_kv_survival_total that should be kept: the pool's kv_objective.share.",
            ["pool"],
            registry=registry,
        )
        self._warm_ups = functools.cache(
            Counter(
                "slipstream_warm_ups",
                "Prefetches of the prompt for a file's next line, by model and outcome: computed, superseded (by a "
                "keystroke or by a request for the replica), refused (the replica was not idle), unpaid (more tokens "
                "than the key's requests were billed for), failed.",
                ["model", "outcome"],
                registry=registry,
            ).labels
        )
        self._of_pool = functools.cache(self._made_for)

    def prefilled_again(self, model: str, tokens: int) -> None:
        """Record the tokens that an engine computed for a keystroke in a known file."""
        self._prefilled_again(model).observe(tokens)

    def gap(self, pool: str, kv: Kv, gap_s: float, objective: KvObjective) -> None:
        """Record the gap before a file's next request, and the fate of the prefix that it shares with the last."""
        self._gaps(pool, kv).observe(gap_s)
        survived = self._of_pool(pool)
        self._objective.labels(pool).set(objective.share)
        if gap_s <= objective.within_s:
            survived[kv].inc()

    def warmed_up(self, model: str, outcome: str) -> None:
        """Record the outcome of a prefetch."""
        self._warm_ups(model, outcome).inc()

    def _made_for(self, pool: str) -> dict[Kv, Counter]:
        """Create all three counters, so that none is missing from a ratio."""
        return {kv: self._survived.labels(pool, kv) for kv in OUTCOMES}
