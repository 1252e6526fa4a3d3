"""The objectives by version, and the requests of each minute that kept them."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Column, DateTime, Double, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import UUID

from contracts.generation import Tier
from contracts.length_class import LengthClass
from storage.tables.core import metadata, one_of

# All rows of a version are written together; the newest version is in force from its whole minute on.
slo_objectives = Table(
    "slo_objectives",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("tier", Text, primary_key=True),
    Column("length", Text, primary_key=True),
    Column("valid_from", DateTime(timezone=True), nullable=False),
    Column("ttft_ms", Double, nullable=False),
    Column("tpot_ms", Double),
    Column("itl_max_ms", Double),
    Column("target", Double, nullable=False),
    one_of("tier", Tier),
    one_of("length", LengthClass),
    CheckConstraint("target > 0 AND target < 1", name="target"),
)

COUNTS = (
    "requests",
    # of these:
    "counted",
    "failed",
    "shed",
    "limited",
    "abandoned",
    "superseded",
    # of the counted ones:
    "good",
    "ttft_kept",
    "tpot_kept",
    "gap_kept",
    # of all requests, from engines' reports; the last of the good ones:
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "good_tokens",
    # of the counted ones: refused for lack of room while their organization requested more than its share
    "over_share",
)
"""The columns that are added up."""

# By the minute (UTC) in which requests arrived. Model and pool are empty if there is none. No foreign keys, as in the
# ledger.
slo_minutes = Table(
    "slo_minutes",
    metadata,
    Column("minute", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("tier", Text, primary_key=True),
    Column("length", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    # The side of a rollout, see `contracts.split.Side`.
    Column("side", Text, primary_key=True),
    # The version of the objectives that judged it.
    Column("version", BigInteger, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in COUNTS[:-1]),
    Column("over_share", BigInteger, nullable=False, server_default=text("0")),
    Index(None, "organization_id", "minute"),
)

# By the hour (UTC), over all of an organization's projects.
slo_hours = Table(
    "slo_hours",
    metadata,
    Column("at", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    *(Column(name, Text, primary_key=True) for name in ("tier", "length", "model", "pool")),
    Column("side", Text, primary_key=True),
    *(Column(name, BigInteger, nullable=False) for name in COUNTS),
    Index(None, "organization_id", "at"),
)

# Rows recorded before a run began, less the duration of a transaction, are not read again.
slo_roll_up_runs = Table(
    "slo_roll_up_runs",
    metadata,
    Column("started_at", DateTime(timezone=True), primary_key=True),
    Column("seconds", Double, nullable=False),
    Column("minutes", Integer, nullable=False),
)
