"""Uses engines' own counters for replicas whose responses report no timing."""

from __future__ import annotations

import msgspec

from control.diagnosis.findings.evidence import EnginePage, Window
from control.diagnosis.findings.measure import Measure

CLEARLY = 2.0
"""The ratio of two stages from which only the longer one is named."""


class StageMeans(msgspec.Struct, frozen=True):
    """Means over all requests of some replicas, in milliseconds."""

    pools: tuple[str, ...]
    requests: int
    queue_ms: float
    prefill_ms: float

    @property
    def queues(self) -> bool:
        """Whether waiting clearly takes longer than computing."""
        return self.queue_ms >= CLEARLY * self.prefill_ms

    @property
    def computes(self) -> bool:
        """Whether computing clearly takes longer than waiting."""
        return self.prefill_ms >= CLEARLY * self.queue_ms

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        return (
            f"By its engines' own counters, a request of {', '.join(self.pools)} waited {self.queue_ms:,.0f} ms in the "
            f"engine and was prefilled in {self.prefill_ms:,.0f} ms (means of {self.requests:,} requests, all classes)."
        )


def stage_means(window: Window) -> StageMeans | None:
    """Means of replicas whose responses do not separate queue and prefill; None if their counters do not cover this
    window."""
    unsplit = {each.replica_id for each in window.replicas if Measure.ENGINE_UNSPLIT in each.measures}
    pages = [page for page in window.pages if page.replica_id in unsplit and page.requests]
    requests = sum(page.requests for page in pages)
    if not pages:
        return None
    return StageMeans(
        tuple(sorted({page.pool for page in pages})),
        requests,
        1e3 * sum(page.queue_s for page in pages) / requests,
        1e3 * sum(page.prefill_s for page in pages) / requests,
    )


def retracting_pages(window: Window) -> tuple[EnginePage, ...]:
    """Counters of replicas whose responses never report retractions."""
    reporting = {each.replica_id for each in window.replicas if each.retractions_known}
    answering = {each.replica_id for each in window.replicas}
    return tuple(page for page in window.pages if page.requests and page.replica_id in answering - reporting)
