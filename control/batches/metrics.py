"""The worker's metrics of batches."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from control.batches.machine import UNFINISHED
from control.deferred.status_gauge import StatusGauge


class BatchMetrics(StatusGauge):
    """Counts batches by status, and stored results."""

    def __init__(self, registry: CollectorRegistry) -> None:
        lines = Counter(
            "slipstream_batch_lines",
            "Results of batch lines that this worker stored, by the file that they go to: output or error.",
            ["file"],
            registry=registry,
        )
        self._lines = {ok: lines.labels("output" if ok else "error") for ok in (True, False)}
        text = "Batches in the deployment that have not ended, by status."
        super().__init__("slipstream_batches", text, (status.value for status in UNFINISHED), registry)

    def stored(self, *, completed: int, failed: int) -> None:
        """Count stored results."""
        self._lines[True].inc(completed)
        self._lines[False].inc(failed)
