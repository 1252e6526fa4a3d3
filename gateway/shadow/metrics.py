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
                "Requests selected to be copied to a candidate, by model and outcome: compared, answered (only the "
                "candidate answered; the customer's own engine failed), failed (the candidate failed), late "
                "(`gateway.shadow.timeout_s`), long (the candidate wrote more than is compared), busy (no candidate "
                "replica was idle), superseded (a customer's request took the replica, or the gateway stopped), "
                "limited (by the number of concurrent copies or by `gateway.shadow.per_minute`).",
                ["model", "outcome"],
                registry=registry,
            ).labels
        )
        self.pairs_dropped = Counter(
            "slipstream_shadow_pairs_dropped",
            "Pairs that were not stored because too many were waiting for the database.",
            registry=registry,
        )

    def copied(self, model: str, outcome: CopyOutcome) -> None:
        """Count a copy's outcome."""
        self._copies(model, outcome).inc()
