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
            "1 while the journal can be written; 0 after a disk error, when the gateway admits no requests.",
        )
        self.journal_failures = counter(
            "slipstream_journal_failures", "Disk errors of the journal (write, fdatasync, creation of a segment)."
        )
        self.journal_commit_s = LoopHistogram(  # only the committer adds to it
            "slipstream_journal_commit_seconds",
            "Duration of a group commit: write and fdatasync.",
            (),
            buckets=_COMMIT_BUCKETS_S,
            registry=registry,
        ).labels()
        self.journal_committed = LoopCounter(
            "slipstream_journal_closed", "Closed records made durable.", registry=registry
        )
        self.journal_segments: Gauge | _Unshown = gauge(
            "slipstream_journal_segments", "Journal files with rows that are not yet in the ledger."
        )
        self.journal_torn = counter(
            "slipstream_journal_torn_tails", "Journal files whose last write a crash cut short."
        )
        self.journal_damaged = counter(
            "slipstream_journal_damaged_segments",
            "Journal files that are damaged in the middle, kept as .bad. Rows may be missing from the ledger.",
        )
        self.journal_orphans = counter(
            "slipstream_journal_orphans",
            "Placements without a row in the ledger, because damage destroyed their opened record.",
        )
        self.recovered = counter(
            "slipstream_recovered_attempts",
            "Attempts that a crash left open, by the outcome with which they were closed.",
            ["outcome"],
        )
        self.adopted = counter(
            "slipstream_journal_adopted",
            "Journal folders of vanished instances that this instance shipped to the ledger.",
        )
        self.backlog_rows: Gauge | _Unshown = gauge(
            "slipstream_ledger_backlog_rows", "Durable rows that are not yet in the ledger."
        )
        self.oldest_age_s: Gauge | _Unshown = gauge(
            "slipstream_ledger_oldest_seconds", "Age of the oldest row that is not yet in the ledger."
        )
        self.shipped = counter("slipstream_ledger_rows", "New rows in the ledger.")
        self.duplicates = counter(
            "slipstream_ledger_duplicates",
            "Rows that were already in the ledger when they were shipped. They were shipped twice and counted once.",
        )
        self.ship_errors = counter(
            "slipstream_ledger_errors",
            "Failed attempts to ship a batch to the ledger. The gateway retries until it succeeds.",
        )
        self.refused = counter(
            "slipstream_ledger_refused", "Rows that the database rejected, kept in refused.jsonl in the journal folder."
        )
        self.billed_twice = counter(
            "slipstream_ledger_billed_twice",
            "Rows recorded as not billed because another attempt of the same request is already billed.",
        )
        self.drift_tokens = gauge(
            "slipstream_ledger_drift_tokens",
            "Difference between engines' own counters and the ledger over the last day, in tokens by kind; 0 if they "
            "agree.",
            ["kind"],
        )
        self.wrong_totals = gauge(
            "slipstream_ledger_wrong_totals",
            "Totals (by hour, by day and in money) that the last verification found to differ from the events.",
        )

    def without_gauges(self) -> MeteringMetrics:
        """The same counters for a second journal in this process, whose state must not overwrite the first one's."""
        other = copy.copy(self)
        other.journal_healthy = other.journal_segments = other.backlog_rows = other.oldest_age_s = _Unshown()
        return other
