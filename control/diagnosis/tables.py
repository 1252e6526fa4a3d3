"""Changes with their expected and measured effects; and totals of requests by hour."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Double, Index, Integer, Table, Text, func
from sqlalchemy.dialects.postgresql import UUID

from contracts.generation import Tier
from storage.tables.core import id_column, metadata, one_of


class Metric(StrEnum):
    """The measure that a change should move."""

    TTFT = "ttft"
    TPOT = "tpot"
    LONGEST_GAP = "longest_gap"


class Statistic(StrEnum):
    """The statistic of the distribution."""

    P50 = "p50"
    P95 = "p95"
    P99 = "p99"


# Changes belong to the deployment, not to an organization.
changes = Table(
    "changes",
    metadata,
    id_column(),
    Column("name", Text, nullable=False),
    Column("made_at", DateTime(timezone=True), nullable=False),
    Column("metric", Text, nullable=False),
    Column("statistic", Text, nullable=False),
    # Null for all.
    Column("tier", Text),
    Column("model", Text),
    # Expected change in milliseconds; negative if requests become faster.
    Column("expected_ms", Double, nullable=False),
    # Length of the window before the change, and of the one after it.
    Column("window_s", Integer, nullable=False),
    Column("before_ms", Double),
    Column("before_requests", Integer),
    Column("after_ms", Double),
    Column("after_requests", Integer),
    # When the four columns above were stored.
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

# Totals of requests that arrived in an hour (UTC), with rows for all organizations and for every tier, which
# control/slo/request_rollup.py names. No foreign keys, as in the ledger.
request_hours = Table(
    "request_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("tier", Text, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in ("requests", "retried", "answered")),
    # The sum, over the hour's seconds, of the squared number of requests.
    Column("squares", BigInteger, nullable=False),
)
# Totals of requests that failed or that a rule refused.
request_error_hours = Table(
    "request_error_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("tier", "error_code")),
    # The rule that refused the requests; empty if none did.
    Column("rule", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
)
# Totals of requests for known models, by target. The pool is empty for requests that were placed on no engine, and the
# code if the platform did not fail.
request_target_hours = Table(
    "request_target_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("tier", "model", "pool", "error_code")),
    Column("requests", BigInteger, nullable=False),
)
# Totals of refused requests, by key.
refused_key_hours = Table(
    "refused_key_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("tier", Text, primary_key=True),
    Column("key_id", UUID(), primary_key=True),
    Column("requests", BigInteger, nullable=False),
)
