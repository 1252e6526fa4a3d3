"""The worker's metric of responses in the background."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Gauge

from gateway.responses.bounds import UNFINISHED


class ResponseMetrics:
    """On the registry given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = Gauge(
            "slipstream_background_responses",
            "Responses in the background that have not finished, of the deployment, by status.",
            ["status"],
            registry=registry,
        )
        self._responses = {status: gauge.labels(status) for status in UNFINISHED}

    def set_counts(self, found: Mapping[str, int]) -> None:
        """found: numbers of responses by status; 0 of the others."""
        for status, gauge in self._responses.items():
            gauge.set(found.get(status, 0))
