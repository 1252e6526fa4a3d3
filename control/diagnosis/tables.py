"""Changes with their expected and measured effects; and totals of requests by hour."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Double, Index, Integer, Table, Text, func
from sqlalchemy.dialects.postgresql import UUID

from contracts.generation import Tier
from storage.tables.core import id_column, metadata, one_of


class Metric(StrEnum):
    """The measure that a change is to move."""

    TTFT = "ttft"
    TPOT = "tpot"
    LONGEST_GAP = "longest_gap"


class Statistic(StrEnum):
    """Which of the distribution."""

    P50 = "p50"
    P95 = "p95"
    P99 = "p99"


# The deployment's, of no organization.
changes = Table(
    "changes",
    metadata,
    id_column(),
    Column("name", Text, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
    Column("metric", Text, nullable=False),
    Column("statistic", Text, nullable=False),
    # Null: all.
    Column("tier", Text),
    Column("model", Text),
    # Expected change in milliseconds; below 0: faster.
    Column("expected_ms", Double, nullable=False),
    # How long before and after it is measured.
    Column("window_s", Integer, nullable=False),
    Column("before_ms", Double),
    Column("before_requests", Integer),
    Column("after_ms", Double),
    Column("after_requests", Integer),
    # Since when the four above are kept.
    Column("measured_at", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    one_of("metric", Metric),
    one_of("statistic", Statistic),
    one_of("tier", Tier),
    CheckConstraint("window_s > 0", name="window_s"),
    CheckConstraint(
        "(measured_at IS NULL) = (before_ms IS NULL) AND (measured_at IS NULL) = (after_ms IS NULL)", name="measured_at"
    ),
    Index(None, "made_at", "id"),
)

# Of requests that arrived in an hour (UTC); of all organizations and of every tier too, as rollup.py names them. No
# foreign keys, as in the ledger.
request_hours = Table(
    "request_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("tier", Text, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in ("requests", "retried", "answered")),
    # The sum over its seconds of the requests of each, squared.
    Column("squares", BigInteger, nullable=False),
)
# Of requests that failed, or were refused by a rule.
request_error_hours = Table(
    "request_error_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("tier", "error_code")),
    # What refused; empty: nothing did.
    Column("rule", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
)
# Of requests of a known model, by where they went. An empty pool: nowhere; an empty code: the platform did not fail.
request_target_hours = Table(
    "request_target_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("tier", "model", "pool", "error_code")),
    Column("requests", BigInteger, nullable=False),
)
# Of refused requests, by who sent them.
refused_key_hours = Table(
    "refused_key_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("tier", Text, primary_key=True),
    Column("key_id", UUID(), primary_key=True),
    Column("requests", BigInteger, nullable=False),
)
