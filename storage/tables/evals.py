"""Measurements of models' responses, in the PostgreSQL schema `evals`: runs with the versions of model and slice, every
item's response and score, and comparisons' results."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from storage.tables.core import created_at, id_column, metadata, one_of

SCHEMA = "evals"
ORGANIZATION = "evals"
"""Name of the internal organization whose keys send the items' requests."""


class Status(StrEnum):
    """Status of a run or a comparison."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = (Status.DONE, Status.FAILED, Status.CANCELLED)


class Arm(StrEnum):
    """Side of a comparison that a run belongs to."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class Decision(StrEnum):
    """Result of a comparison. Inconclusive is no pass: its budget ended before a decision."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


def job_columns() -> list[Column[object]]:
    """Common columns of runs and comparisons: progress, and the lease of a worker."""
    return [
        Column("status", Text, nullable=False, server_default=text("'queued'")),
        created_at(),
        Column("started_at", DateTime(timezone=True)),
        Column("ended_at", DateTime(timezone=True)),
        Column("cancel_asked_at", DateTime(timezone=True)),
        # The reason for a failure, as a sentence.
        Column("error", Text),
        # A worker's lease; only its holder writes, and any worker may take an expired one.
        Column("lease_id", UUID()),
        Column("lease_until", DateTime(timezone=True)),
    ]


# The pool and the engines' model behind a model's name, by the desired state at a run's beginning.
model_versions = Table(
    "model_versions",
    metadata,
    id_column(),
    Column("model", Text, nullable=False),
    Column("pool", Text, nullable=False),
    # The name under which the pool's engines serve it.
    Column("engine_model", Text, nullable=False),
    created_at(),
    UniqueConstraint("model", "pool", "engine_model"),
    schema=SCHEMA,
)

slice_versions = Table(
    "slice_versions",
    metadata,
    id_column(),
    Column("slice", Text, nullable=False),
    # Version of its items and of their judgement.
    Column("version", Text, nullable=False),
    Column("about", Text, nullable=False),
    # Required share of right answers, 0 to 1.
    Column("goal", Double, nullable=False),
    created_at(),
    UniqueConstraint("slice", "version"),
    schema=SCHEMA,
)

runs = Table(
    "runs",
    metadata,
    id_column(),
    Column("model", Text, nullable=False),
    # The pool that answers; null for the router's choice, as for a customer.
    Column("pool", Text),
    # Its side of a comparison; null without one.
    Column("arm", Text),
    Column("model_version_id", UUID(), ForeignKey(model_versions.c.id)),
    *job_columns(),
    # Seed of the first item. The following items have the following seeds.
    Column("first_seed", BigInteger, nullable=False),
    # The night (UTC) for which the schedule queued it; null if it was requested.
    Column("night", Date),
    # For a night: the model's version (control/evals/target.py).
    Column("version", JSONB),
    one_of("status", Status),
    one_of("arm", Arm),
    Index(None, "created_at", "id"),
    Index("runs_night_key", "model", "night", unique=True, postgresql_where=text("night IS NOT NULL")),
    schema=SCHEMA,
)

run_slices = Table(
    "run_slices",
    metadata,
    Column("run_id", UUID(), ForeignKey(runs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("slice", Text, primary_key=True),
    # Null until the first of its items is sent.
    Column("slice_version_id", UUID(), ForeignKey(slice_versions.c.id)),
    # Number of items to run; an undecided comparison raises it.
    Column("items", Integer, nullable=False),
    # Items deleted by the worker after their retention: number and score.
    Column("forgotten_items", Integer, nullable=False, server_default=text("0")),
    Column("forgotten_score", Double, nullable=False, server_default=text("0")),
    CheckConstraint("items > 0", name="items"),
    schema=SCHEMA,
)

items = Table(
    "items",
    metadata,
    # One row for each item that was sent, even after a crash, so that it counts once.
    Column("run_id", UUID(), ForeignKey(runs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("slice", Text, primary_key=True),
    Column("seed", BigInteger, primary_key=True, autoincrement=False),
    # Source of the item; answers of one cluster fail together.
    Column("cluster", Text, nullable=False),
    Column("answer", Text, nullable=False),
    # 0 to 1.
    Column("score", Double, nullable=False),
    # Its id in the ledger and in logs.
    Column("request_id", Text),
    Column("latency_ms", Double, nullable=False),
    # Code of a refusal, such as for a prompt that is too long for the model; null with a response.
    Column("error_code", Text),
    Column("answered_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    CheckConstraint("score >= 0 AND score <= 1", name="score"),
    schema=SCHEMA,
)

comparisons = Table(
    "comparisons",
    metadata,
    id_column(),
    Column("model", Text, nullable=False),
    Column("baseline_run", UUID(), ForeignKey(runs.c.id), nullable=False),
    Column("candidate_run", UUID(), ForeignKey(runs.c.id), nullable=False),
    *job_columns(),
    # Parameters of the decision: margin, alpha, fail_alpha, power and first look.
    Column("rule", JSONB, nullable=False),
    # Limit of the items of one slice; more are drawn up to it while a slice is undecided.
    Column("budget_items", Integer, nullable=False),
    Column("decision", Text),
    # Results by slice.
    Column("verdict", JSONB),
    # The release that requested it; null without one.
    Column("release_id", UUID()),
    one_of("status", Status),
    one_of("decision", Decision),
    CheckConstraint("(status = 'done') = (decision IS NOT NULL)", name="decided"),
    CheckConstraint("budget_items > 0", name="budget_items"),
    Index(None, "created_at", "id"),
    Index(None, "release_id"),
    schema=SCHEMA,
)

nights = Table(
    "nights",
    metadata,
    Column("run_id", UUID(), ForeignKey(runs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("model", Text, nullable=False),
    Column("pool", Text, nullable=False),
    # UTC.
    Column("night", Date, nullable=False),
    Column("judged_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("decision", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # The first of the nights up to this one that ran the same version; null if the run did not end.
    Column("version_since", Date),
    # Differences from the previous version, while the two are compared.
    Column("changed", ARRAY(Text), nullable=False),
    # evals/nights.py: NightSlice of each.
    Column("slices", JSONB, nullable=False),
    # The release that was promoted before it, if a failure offers its rollback; otherwise null.
    Column("release_id", UUID()),
    one_of("decision", Decision),
    Index(None, "judged_at", "run_id"),
    Index(None, "model", "night"),
    schema=SCHEMA,
)

# One row: the settings of the workers of the queue `evals`, for other processes.
night_plan = Table(
    "night_plan",
    metadata,
    Column("single", Boolean, primary_key=True, server_default=text("true")),
    # When a worker last wrote it.
    Column("reported_at", DateTime(timezone=True), nullable=False),
    # In the format of a crontab; empty for never.
    Column("schedule", Text, nullable=False),
    Column("previous_at", DateTime(timezone=True)),
    Column("next_at", DateTime(timezone=True)),
    # Number of items of each slice.
    Column("items", Integer, nullable=False),
    # The slices of a night, by model.
    Column("slices", JSONB, nullable=False),
    Column("automatic_rollback", Boolean, nullable=False),
    CheckConstraint("single", name="single"),
    schema=SCHEMA,
)
