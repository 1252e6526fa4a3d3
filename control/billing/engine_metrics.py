"""Increases of engines' own counters, for alerts. They are as old as the worker's last sample."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from engines.drivers.counters import EngineCounts


class EngineCounterMetrics:
    """One worker's counters. Only one worker counts each sample, so add up those of all workers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._retractions = Counter(
            "slipstream_engine_retractions",
            "Requests that engines evicted from memory and must compute again, as counted on the engines' own "
            "metrics pages (SGLang only). Increases are measured between two samples of the same process "
            "(`worker.ledger.reconcile_every_s`).",
            ("pool", "replica"),
            registry=registry,
        )

    def sampled(self, pool: str, replica_id: str, before: EngineCounts | None, now: EngineCounts) -> None:
        """Count a stored sample. before: the previous sample of the same process, if any."""
        if now.stages is None:
            return
        counter = self._retractions.labels(pool, replica_id)  # at 0, so that increases can be computed from the start
        if before is not None and before.stages is not None:
            counter.inc(now.stages.retractions - before.stages.retractions)
