"""What the journal and the ledger show of themselves. `docs/reference/metrics.md` lists every name."""

from __future__ import annotations

import copy

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_COMMIT_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class _Unshown:
    """A gauge nobody sees."""

    def set(self, value: float) -> None:
        pass


class MeteringMetrics:
    """Made once per process on the registry it is given."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.journal_healthy: Gauge | _Unshown = Gauge(
            "slipstream_journal_healthy",
            "1 while the journal can be written; 0 after a disk error: nothing is admitted.",
            registry=registry,
        )
        self.journal_failures = Counter(
            "slipstream_journal_failures",
            "Disk errors of the journal (write, fdatasync, a new segment).",
            registry=registry,
        )
        self.journal_commit_s = Histogram(
            "slipstream_journal_commit_seconds",
            "Time of one group commit: write and fdatasync.",
            registry=registry,
            buckets=_COMMIT_BUCKETS_S,
        )
        self.journal_committed = Counter("slipstream_journal_closed", "Closed records made durable.", registry=registry)
        self.journal_segments: Gauge | _Unshown = Gauge(
            "slipstream_journal_segments",
            "Files of the journal that are not yet wholly shipped.",
            registry=registry,
        )
        self.journal_torn = Counter(
            "slipstream_journal_torn_tails", "Files whose last write a crash had cut short.", registry=registry
        )
        self.journal_damaged = Counter(
            "slipstream_journal_damaged_segments",
            "Files found damaged in the middle, kept as .bad: a row may be missing from the ledger.",
            registry=registry,
        )
        self.journal_orphans = Counter(
            "slipstream_journal_orphans",
            "Placements whose opened record damage has destroyed: no row can be written for them.",
            registry=registry,
        )
        self.recovered = Counter(
            "slipstream_recovered_attempts",
            "Attempts that a crash had left open, by the outcome they were closed with.",
            ["outcome"],
            registry=registry,
        )
        self.adopted = Counter(
            "slipstream_journal_adopted",
            "Journal folders of vanished instances emptied by this one.",
            registry=registry,
        )
        self.backlog_rows: Gauge | _Unshown = Gauge(
            "slipstream_ledger_backlog_rows",
            "Durable rows that are not yet in the ledger.",
            registry=registry,
        )
        self.oldest_age_s: Gauge | _Unshown = Gauge(
            "slipstream_ledger_oldest_seconds",
            "Age of the oldest row that is not yet in the ledger.",
            registry=registry,
        )
        self.shipped = Counter("slipstream_ledger_rows", "Rows new in the ledger.", registry=registry)
        self.duplicates = Counter(
            "slipstream_ledger_duplicates",
            "Rows that were in the ledger already when they were shipped: shipped twice, counted once.",
            registry=registry,
        )
        self.ship_errors = Counter(
            "slipstream_ledger_errors", "Failed tries to ship a batch; tried again for ever.", registry=registry
        )
        self.refused = Counter(
            "slipstream_ledger_refused",
            "Rows the database will not take, kept in refused.jsonl of the journal folder.",
            registry=registry,
        )
        self.billed_twice = Counter(
            "slipstream_ledger_billed_twice",
            "Rows recorded as not billed because another attempt of the request is billed already.",
            registry=registry,
        )
        self.drift_tokens = Gauge(
            "slipstream_ledger_drift_tokens",
            "How far engines' own counters and the ledger are apart, over the last day; 0 when all agree.",
            ["kind"],
            registry=registry,
        )
        self.wrong_totals = Gauge(
            "slipstream_ledger_wrong_totals",
            "Hours, days and amounts that the last verification found to differ from the events.",
            registry=registry,
        )

    def without_gauges(self) -> MeteringMetrics:
        """The same counters for a second journal in this process, whose state must not overwrite the first one's."""
        other = copy.copy(self)
        other.journal_healthy = other.journal_segments = other.backlog_rows = other.oldest_age_s = _Unshown()
        return other
