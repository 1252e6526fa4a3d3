"""The ledger, its roll-ups, the prices, and reconciliation's observations.

`usage_events` is partitioned by ranges of the request id, which begins with the time of arrival: one partition for each
day (`usage_events_20261120`), created by `gateway.ensure_usage_day`, and one at each end for ids without a time.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Date,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    event,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID, ExcludeConstraint

from contracts.usage import Finish, Outcome
from storage.tables.core import created_at, metadata, one_of

# No foreign keys: the ledger outlives the keys that it names, and a row must never wait for another table's lock.
usage_events = Table(
    "usage_events",
    metadata,
    Column("request_id", Text(collation="C"), primary_key=True),
    Column("attempt", SmallInteger, primary_key=True, autoincrement=False),
    Column("organization_id", UUID(), nullable=False),
    Column("project_id", UUID(), nullable=False),
    Column("key_id", UUID(), nullable=False),
    Column("model", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("pool", Text),
    Column("replica_id", Text),
    Column("driver", Text),
    Column("stream", Boolean, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("cache_write_tokens", Integer, nullable=False, server_default=text("0")),
    Column("completion_tokens", Integer, nullable=False),
    Column("reasoning_tokens", Integer, nullable=False),
    Column("draft_tokens", Integer, nullable=False, server_default=text("0")),
    Column("accepted_draft_tokens", Integer, nullable=False, server_default=text("0")),
    Column("outcome", Text, nullable=False),
    Column("finish", Text, nullable=False),
    # Set by the writer, not derived: a failed attempt's tokens are recorded, but only the successful attempt is billed.
    Column("billed", Boolean, nullable=False),
    Column("price_version", BigInteger),
    Column("amount_micro", BigInteger, nullable=False, server_default=text("0")),
    Column("status", SmallInteger),
    Column("error_code", Text),
    Column("phases_ms", JSONB, nullable=False),
    # The time of arrival decides the day, the hour and the price of a whole request.
    Column("requested_at", DateTime(timezone=True), nullable=False),
    Column("opened_at", DateTime(timezone=True), nullable=False),
    Column("closed_at", DateTime(timezone=True), nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("gateway_id", Text, nullable=False),
    # The deployment's own purpose, such as `evals`, which is not billed; null for a customer's request.
    Column("purpose", Text),
    # The tenant's own name of the LoRA adapter; null without one. It costs what its model costs.
    Column("adapter", Text),
    # The percentage of the price that it cost: 100, or the price's `offline_percent` in the class `offline`.
    Column("price_percent", SmallInteger, nullable=False, server_default=text("100")),
    one_of("outcome", Outcome),
    one_of("finish", Finish),
    CheckConstraint(
        "amount_micro >= 0 AND (amount_micro = 0 OR billed AND price_version IS NOT NULL)", name="amount_micro"
    ),
    Index("usage_events_one_billed_attempt_idx", "request_id", unique=True, postgresql_where=text("billed")),
    # Ids are in order of time, so these serve a tenant's newest attempts and every later page.
    Index(None, "organization_id", "request_id", "attempt"),
    Index(None, "project_id", "request_id", "attempt"),
    Index(None, "key_id", "request_id", "attempt"),
    # Rows arrive nearly in order of time, so a BRIN index finds an hour at almost no cost per row written.
    Index(None, "closed_at", postgresql_using="brin"),
    Index(None, "recorded_at", postgresql_using="brin"),
    postgresql_partition_by="RANGE (request_id)",
)


COUNTED = (
    "prompt_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "amount_micro",
)
"""Counts of cost and its causes, added up over billed attempts, next to `requests`, which is their number."""
DRAFTED = ("draft_tokens", "accepted_draft_tokens")
"""Counts of engines' drafts, which are in roll-ups and on no invoice."""
ROLLED_UP = (*COUNTED, *DRAFTED)
"""Columns that roll-ups add up for a billed attempt."""


def _totals(*owners: str) -> list[Column[object]]:
    """Columns of roll-ups after their time: owners and sums of billed attempts. owners: columns of ids."""
    ids: list[Column[object]] = [Column(owner, UUID(), primary_key=True) for owner in owners]
    counted: list[Column[object]] = [Column(name, BigInteger, nullable=False) for name in ("requests", *COUNTED)]
    drafted: list[Column[object]] = [
        Column(name, BigInteger, nullable=False, server_default=text("0")) for name in DRAFTED
    ]
    return [
        *ids,
        Column("model", Text, primary_key=True),
        Column("tier", Text, primary_key=True),
        *counted,
        *drafted,
        Column("computed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        # As in the events, but empty without one.
        Column("adapter", Text, primary_key=True, server_default=""),
    ]


usage_hourly = Table(
    "usage_hourly",
    metadata,
    Column("hour", DateTime(timezone=True), primary_key=True),
    *_totals("organization_id", "project_id", "key_id"),
    Index(None, "organization_id", "hour"),
)

usage_daily = Table(
    "usage_daily",
    metadata,
    Column("day", Date, primary_key=True),
    *_totals("organization_id", "project_id", "key_id"),
    Index(None, "organization_id", "day"),
    Index(None, "project_id", "day"),
    Index(None, "key_id", "day"),
)

# Totals of past weeks (UTC, from Monday), recomputed when a row reaches them later.
usage_weekly = Table(
    "usage_weekly",
    metadata,
    Column("week", Date, primary_key=True),
    *_totals("organization_id", "project_id", "key_id"),
    Index(None, "organization_id", "week"),
)

# One row: the table above has all weeks that began before it.
usage_week_closings = Table("usage_week_closings", metadata, Column("until", Date, primary_key=True))

# The same totals without keys, and below without projects, for organizations that have thousands of them.
project_usage_daily = Table(
    "project_usage_daily",
    metadata,
    Column("day", Date, primary_key=True),
    *_totals("organization_id", "project_id"),
    Index(None, "organization_id", "day"),
    Index(None, "project_id", "day"),
)

organization_usage_hourly = Table(
    "organization_usage_hourly",
    metadata,
    Column("hour", DateTime(timezone=True), primary_key=True),
    *_totals("organization_id"),
    Index(None, "organization_id", "hour"),
)

organization_usage_daily = Table(
    "organization_usage_daily",
    metadata,
    Column("day", Date, primary_key=True),
    *_totals("organization_id"),
    Index(None, "organization_id", "day"),
)

CHARGED = ("uncached_tokens", "charged_cached_tokens", "charged_cache_write_tokens")
"""A prompt's parts with different prices. All three together are the prompt."""


def _invoice_lines() -> list[Column[object]]:
    """Columns that invoices' lines add up, next to their time. A price_version of 0 means no price."""
    ids: list[Column[object]] = [
        Column(owner, UUID(), primary_key=True) for owner in ("organization_id", "project_id", "key_id")
    ]
    texts: list[Column[object]] = [Column(name, Text, primary_key=True) for name in ("model", "tier")]
    sums: list[Column[object]] = [Column(name, BigInteger, nullable=False) for name in ("requests", *COUNTED, *CHARGED)]
    price: Column[object] = Column("price_version", BigInteger, primary_key=True, autoincrement=False)
    percent: Column[object] = Column(
        "price_percent", SmallInteger, primary_key=True, autoincrement=False, server_default=text("100")
    )
    return [*ids, *texts, price, *sums, percent]


# Totals of past hours, recomputed when a row reaches them later. Those of retired days never change.
invoice_days = Table("invoice_days", metadata, Column("day", Date, primary_key=True), *_invoice_lines())

# The sums of a month's days.
invoice_months = Table(
    "invoice_months",
    metadata,
    Column("month", Date, primary_key=True),
    *_invoice_lines(),
    Index(None, "organization_id", "month"),
)

# One row: the two tables above have all hours before it.
invoice_closings = Table("invoice_closings", metadata, Column("until", DateTime(timezone=True), primary_key=True))

# Later runs skip rows that were recorded before a run began, minus the longest time of a transaction.
usage_roll_up_runs = Table(
    "usage_roll_up_runs",
    metadata,
    Column("started_at", DateTime(timezone=True), primary_key=True),
    Column("seconds", Double, nullable=False),
    Column("hours", Integer, nullable=False),
)

# Days whose events were dropped after their retention. Only their roll-ups remain, and are never recomputed.
usage_retired_days = Table(
    "usage_retired_days",
    metadata,
    Column("day", Date, primary_key=True),
    Column("rows", BigInteger, nullable=False),
    Column("amount_micro", BigInteger, nullable=False),
    Column("retired_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

# Results of comparing the roll-ups with the events.
usage_verifications = Table(
    "usage_verifications",
    metadata,
    Column("checked_at", DateTime(timezone=True), primary_key=True, server_default=func.now()),
    Column("from_day", Date, nullable=False),
    Column("until_day", Date, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("wrong_hours", BigInteger, nullable=False),
    Column("wrong_days", BigInteger, nullable=False),
    Column("wrong_amounts", BigInteger, nullable=False),
)

_RATE = "{} BETWEEN 0 AND 1000000000000"

prices = Table(
    "prices",
    metadata,
    Column("version", BigInteger, Identity(always=True), primary_key=True),
    Column("model", Text, nullable=False),
    Column("valid_from", DateTime(timezone=True), nullable=False),
    Column("valid_until", DateTime(timezone=True)),
    # Whether the next price's creation set that end, and no administrator has changed it since.
    Column("ended_by_next", Boolean, nullable=False, server_default=text("false")),
    Column("input_micro", BigInteger, nullable=False),
    Column("cached_input_micro", BigInteger, nullable=False),
    Column("cache_write_micro", BigInteger, nullable=False),
    Column("output_micro", BigInteger, nullable=False),
    created_at(),
    # Percentage of these rates that a request in the class `offline` costs.
    Column("offline_percent", SmallInteger, nullable=False, server_default=text("100")),
    CheckConstraint("valid_until > valid_from", name="valid_until"),
    CheckConstraint("offline_percent BETWEEN 0 AND 100", name="offline_percent"),
    CheckConstraint(_RATE.format("input_micro"), name="input_micro"),
    CheckConstraint(_RATE.format("cached_input_micro"), name="cached_input_micro"),
    CheckConstraint(_RATE.format("cache_write_micro"), name="cache_write_micro"),
    CheckConstraint(_RATE.format("output_micro"), name="output_micro"),
    ExcludeConstraint(
        (text("gateway.text_range(model, model, '[]')"), "&&"),
        (text("tstzrange(valid_from, valid_until)"), "&&"),
        name="prices_one_at_a_time",
    ),
    Index(None, "model", "valid_from"),
)


@event.listens_for(prices, "before_create")
def _create_text_range(_table: Table, connection: Connection, **_options: object) -> None:
    connection.execute(text('CREATE TYPE gateway.text_range AS RANGE (subtype = text, collation = "C")'))


# Samples of each engine's counters since its start.
engine_counts = Table(
    "engine_counts",
    metadata,
    Column("replica_id", Text, primary_key=True),
    Column("sampled_at", DateTime(timezone=True), primary_key=True),
    Column("pool", Text, nullable=False),
    Column("url", Text, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    # False for the first sample, and after a restart of the engine: the previous sample must not be subtracted.
    Column("continues", Boolean, nullable=False),
    # Null together if the engine does not report them; seconds and requests, see engines.drivers.counters.
    Column("queue_s", Double),
    Column("prefill_s", Double),
    Column("requests", BigInteger),
    Column("retractions", BigInteger),
    CheckConstraint("num_nulls(queue_s, prefill_s, requests, retractions) IN (0, 4)", name="stages"),
)

# One engine's count and the ledger's, between two samples.
reconciliations = Table(
    "reconciliations",
    metadata,
    Column("replica_id", Text, primary_key=True),
    Column("window_from", DateTime(timezone=True), primary_key=True),
    Column("window_until", DateTime(timezone=True), nullable=False),
    Column("engine_prompt_tokens", BigInteger, nullable=False),
    Column("engine_completion_tokens", BigInteger, nullable=False),
    Column("ledger_prompt_tokens_min", BigInteger, nullable=False),
    Column("ledger_prompt_tokens_max", BigInteger, nullable=False),
    Column("ledger_completion_tokens_min", BigInteger, nullable=False),
    Column("ledger_completion_tokens_max", BigInteger, nullable=False),
    Column("uncertain_attempts", BigInteger, nullable=False),
    Column("prompt_drift", BigInteger, nullable=False),
    Column("completion_drift", BigInteger, nullable=False),
    Column("checked_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "window_from"),
)
