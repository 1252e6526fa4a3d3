"""The worker's metrics of batches."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from control.batches.machine import UNFINISHED


class BatchMetrics:
    """On the registry given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        lines = Counter(
            "slipstream_batch_lines",
            "Results of batches' lines that this worker stored, by the file they go to: output or error.",
            ["file"],
            registry=registry,
        )
        self._lines = {ok: lines.labels("output" if ok else "error") for ok in (True, False)}
        batches = Gauge(
            "slipstream_batches",
            "Batches of the deployment that have not ended, by status.",
            ["status"],
            registry=registry,
        )
        self._batches = {status.value: batches.labels(status.value) for status in UNFINISHED}

    def stored(self, *, completed: int, failed: int) -> None:
        """Results were stored."""
        self._lines[True].inc(completed)
        self._lines[False].inc(failed)

    def set_counts(self, found: Mapping[str, int]) -> None:
        """found: numbers of batches by status; 0 of the others."""
        for status, gauge in self._batches.items():
            gauge.set(found.get(status, 0))
