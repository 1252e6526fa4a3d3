"""The worker's metrics of prefixes. No label names a tenant, because there are many: the database and webhooks do."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter

from control.prefixes.drops import Drop
from gateway.prefixes.difference import Cause

NO_CAUSE = "none"


class PrefixMetrics:
    """The counters of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._drops = Counter(
            "slipstream_prefix_share_drops",
            "Drops in the reusable share of organizations' prompts, by likely cause (`none`: no single cause).",
            ["cause"],
            registry=registry,
        )
        for cause in (*Cause, NO_CAUSE):
            self._drops.labels(str(cause))  # starts at 0, so that a first drop is an increase

    def began(self, drops: Iterable[Drop]) -> None:
        """Count drops that begin."""
        for drop in drops:
            self._drops.labels(drop.cause or NO_CAUSE).inc()
