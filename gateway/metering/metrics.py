"""Defines the metrics of the journal and the ledger. `docs/reference/metrics.md` lists every name."""

from __future__ import annotations

import copy
import functools

from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.observability.loop_counter import LoopCounter
from gateway.observability.loop_histogram import LoopHistogram

_COMMIT_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class _Unshown:
    """A gauge without output."""

    def set(self, value: float) -> None:
        pass


class MeteringMetrics:
    """Created once per process, on the given registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = functools.partial(Counter, registry=registry)
        gauge = functools.partial(Gauge, registry=registry)
        self.journal_healthy: Gauge | _Unshown = gauge(
            "slipstream_journal_healthy",
            "1 while the journal can be written; 0 after a disk error: nothing is admitted.",
        )
        self.journal_failures = counter(
            "slipstream_journal_failures", "Disk errors of the journal (write, fdatasync, a new segment)."
        )
        self.journal_commit_s = LoopHistogram(  # only the committer adds to it
            "slipstream_journal_commit_seconds",
            "Time of one group commit: write and fdatasync.",
            (),
            buckets=_COMMIT_BUCKETS_S,
            registry=registry,
        ).labels()
        self.journal_committed = LoopCounter(
            "slipstream_journal_closed", "Closed records made durable.", registry=registry
        )
        self.journal_segments: Gauge | _Unshown = gauge(
            "slipstream_journal_segments", "Files of the journal that are not yet wholly shipped."
        )
        self.journal_torn = counter("slipstream_journal_torn_tails", "Files whose last write a crash had cut short.")
        self.journal_damaged = counter(
            "slipstream_journal_damaged_segments",
            "Files found damaged in the middle, kept as .bad: a row may be missing from the ledger.",
        )
        self.journal_orphans = counter(
            "slipstream_journal_orphans",
            "Placements whose opened record damage has destroyed: no row can be written for them.",
        )
        self.recovered = counter(
            "slipstream_recovered_attempts",
            "Attempts that a crash had left open, by the outcome they were closed with.",
            ["outcome"],
        )
        self.adopted = counter(
            "slipstream_journal_adopted", "Journal folders of vanished instances emptied by this one."
        )
        self.backlog_rows: Gauge | _Unshown = gauge(
            "slipstream_ledger_backlog_rows", "Durable rows that are not yet in the ledger."
        )
        self.oldest_age_s: Gauge | _Unshown = gauge(
            "slipstream_ledger_oldest_seconds", "Age of the oldest row that is not yet in the ledger."
        )
        self.shipped = counter("slipstream_ledger_rows", "Rows new in the ledger.")
        self.duplicates = counter(
            "slipstream_ledger_duplicates",
            "Rows that were in the ledger already when they were shipped: shipped twice, counted once.",
        )
        self.ship_errors = counter("slipstream_ledger_errors", "Failed attempts to ship a batch; retried without end.")
        self.refused = counter(
            "slipstream_ledger_refused", "Rows that the database rejects, kept in refused.jsonl of the journal folder."
        )
        self.billed_twice = counter(
            "slipstream_ledger_billed_twice",
            "Rows recorded as not billed because another attempt of the request is billed already.",
        )
        self.drift_tokens = gauge(
            "slipstream_ledger_drift_tokens",
            "Difference between engines' own counters and the ledger over the last day; 0 when all agree.",
            ["kind"],
        )
        self.wrong_totals = gauge(
            "slipstream_ledger_wrong_totals",
            "Hours, days and amounts that the last verification found to differ from the events.",
        )

    def without_gauges(self) -> MeteringMetrics:
        """The same counters for a second journal in this process, whose state must not overwrite the first one's."""
        other = copy.copy(self)
        other.journal_healthy = other.journal_segments = other.backlog_rows = other.oldest_age_s = _Unshown()
        return other
