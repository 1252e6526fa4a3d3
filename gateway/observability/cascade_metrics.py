"""Outcomes of requests for models with a cascade."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

Asked = Literal["unapproved", "not_busy", "rule", "kept", "unsure", "too_long", "late", "failed", "client_gone"]


class CascadeMetrics:
    """Metrics of cascades, in the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = functools.cache(
            Counter(
                "slipstream_cascade_requests",
                "Requests for models with a cascade, by model and outcome: the small model was not used (unapproved, "
                "not_busy, rule), its response was served (kept), it was discarded and the large model answered "
                "(unsure, too_long, late, failed), or the client left before the decision (client_gone).",
                ["model", "outcome"],
                registry=registry,
            ).labels
        )
        self._approved = Gauge(
            "slipstream_cascade_approved",
            "1 if customers may get responses from a model's cascade; 0 if no comparison has passed, or the compared "
            "models have changed since.",
            ["model"],
            registry=registry,
        )
        self._difference = Gauge(
            "slipstream_cascade_worst_difference",
            "Lower bound of the cascade's score minus the large model's score in the comparison that it passed, on "
            "the slice where it is lowest; 0.01 is one point of 100.",
            ["model"],
            registry=registry,
        )

    def asked(self, model: str, outcome: Asked) -> None:
        """Count one request."""
        self._requests(model, outcome).inc()

    def approvals(self, differences: Mapping[str, float | None]) -> None:
        """Set, for every model with a cascade, the lower bound by which it was approved; None if it was not."""
        self._approved.clear()
        self._difference.clear()
        for model, difference in differences.items():
            self._approved.labels(model).set(difference is not None)
            if difference is not None:
                self._difference.labels(model).set(difference)
