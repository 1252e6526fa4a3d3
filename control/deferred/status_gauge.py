"""The worker's gauge of unfinished rows by status, for batches and background responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge


class StatusGauge:
    """A gauge of rows by status. statuses: those of rows that have not ended."""

    def __init__(self, name: str, text: str, statuses: Iterable[str], registry: CollectorRegistry) -> None:
        gauge = Gauge(name, text, ["status"], registry=registry)
        self._of_status = {status: gauge.labels(status) for status in statuses}

    def set_counts(self, found: Mapping[str, int]) -> None:
        """Set the gauge. found: numbers of rows by status; 0 if a status is missing."""
        for status, gauge in self._of_status.items():
            gauge.set(found.get(status, 0))
