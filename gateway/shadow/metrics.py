"""Metrics of a gateway's copies."""

from __future__ import annotations

import functools
from typing import Literal

from prometheus_client import CollectorRegistry, Counter

CopyOutcome = Literal["compared", "answered", "failed", "late", "long", "busy", "superseded", "limited"]


class ShadowMetrics:
    """Counters of one instance, in the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._copies = functools.cache(
            Counter(
                "slipstream_shadow_copies",
                "Requests that were to be copied to a candidate, by model and outcome: compared, answered (the "
                "customer's own engine failed), failed (the candidate did), late (`shadow.timeout_s`), long (it"
                " wrote more than is compared), busy (no replica of it was idle), superseded (a customer's request was"
                " given the replica, or the gateway stopped), limited (`shadow.at_once`, `shadow.per_minute`).",
                ["model", "outcome"],
                registry=registry,
            ).labels
        )
        self.pairs_dropped = Counter(
            "slipstream_shadow_pairs_dropped",
            "Pairs that were not written: too many waited for the database.",
            registry=registry,
        )

    def copied(self, model: str, outcome: CopyOutcome) -> None:
        """Count a copy's outcome."""
        self._copies(model, outcome).inc()
