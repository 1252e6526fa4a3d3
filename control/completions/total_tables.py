"""Totals of completions' outcomes: by hour and by day with all group columns, and with fewer of them by day and by
week, so that three months of a thousand projects are few rows.

Times are those of the requests' arrival, in UTC. No foreign keys, as in the ledger.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ARRAY, BigInteger, Column, Date, DateTime, Double, Index, Integer, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import UUID

from storage.tables.core import metadata

COUNTS = (
    "completions",
    "empty",
    "abandoned",
    "superseded",
    # of editors' showings:
    "shown",
    "accepted",
    "dismissed",
    # of first choices:
    "characters_offered",
    "characters_kept",
)
"""Summed columns, under the admin API's names."""


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _sums() -> list[Column[Any]]:
    return [
        *(Column(name, BigInteger, nullable=False) for name in COUNTS),
        # A histogram of the completions' latencies: storage/latency_histogram.py.
        Column("buckets", ARRAY(SmallInteger), nullable=False),
        Column("counts", ARRAY(BigInteger), nullable=False),
    ]


completion_hours = Table(
    "completion_hours",
    metadata,
    Column("organization_id", UUID(), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("hour", DateTime(timezone=True), primary_key=True),
    *(_key(name) for name in ("language", "client", "model")),
    *_sums(),
    Index(None, "hour", "organization_id"),
)
detailed_completion_days = Table(
    "detailed_completion_days",
    metadata,
    Column("organization_id", UUID(), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("day", Date, primary_key=True),
    *(_key(name) for name in ("language", "client", "model")),
    *_sums(),
    Index(None, "day", "organization_id"),
)
completion_days = Table(
    "completion_days",
    metadata,
    Column("organization_id", UUID(), primary_key=True),
    Column("day", Date, primary_key=True),
    *(_key(name) for name in ("language", "client", "model")),
    *_sums(),
    Index(None, "day", "organization_id"),
)
project_completion_days = Table(
    "project_completion_days",
    metadata,
    Column("organization_id", UUID(), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("day", Date, primary_key=True),
    *_sums(),
    Index(None, "day", "organization_id"),
)
project_completion_weeks = Table(
    "project_completion_weeks",
    metadata,
    Column("organization_id", UUID(), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    # The week's Monday.
    Column("week", Date, primary_key=True),
    *_sums(),
    Index(None, "week", "organization_id"),
)

# Hours with news, until they are recomputed: the next run finds those that one run leaves.
completion_due_hours = Table(
    "completion_due_hours",
    metadata,
    Column("hour", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("since", DateTime(timezone=True), nullable=False),
)

# Rows recorded before a run began, less the duration of a transaction, are not read again.
completion_roll_up_runs = Table(
    "completion_roll_up_runs",
    metadata,
    Column("started_at", DateTime(timezone=True), primary_key=True),
    Column("seconds", Double, nullable=False),
    Column("hours", Integer, nullable=False),
)
