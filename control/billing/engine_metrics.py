"""Increases of engines' own counters, for alerts: as old as the worker's last sample of them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from engines.drivers.counters import EngineCounts


class EngineCounterMetrics:
    """Counters of one worker, on the registry given. A sample is taken by one worker: add theirs up."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._retractions = Counter(
            "slipstream_engine_retractions",
            "Requests that engines evicted from memory, to compute them again, by their own metrics pages where these"
            " count them (SGLang), between two samples of one process (`worker.ledger.reconcile_every_s`).",
            ("pool", "replica"),
            registry=registry,
        )

    def sampled(self, pool: str, replica_id: str, before: EngineCounts | None, now: EngineCounts) -> None:
        """A sample was kept. before: the one before it of the same process; None: there is none."""
        if now.stages is None:
            return
        counted = self._retractions.labels(pool, replica_id)  # at 0, so that increases can be computed from the start
        if before is not None and before.stages is not None:
            counted.inc(now.stages.retractions - before.stages.retractions)
