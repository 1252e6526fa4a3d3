"""The worker's metric of background responses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from control.deferred.status_gauge import StatusGauge
from gateway.responses.bounds import UNFINISHED


class ResponseMetrics(StatusGauge):
    """Counts background responses by status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        text = "Background responses in the deployment that have not finished, by status."
        super().__init__("slipstream_background_responses", text, UNFINISHED, registry)
