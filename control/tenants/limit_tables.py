"""Tables for limits: rules, classes and shares, gateways whose journals may hold usage, and budgets that reached a
threshold."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    func,
)
from sqlalchemy.dialects.postgresql import UUID

from gateway.limits.levels import MAX_MICRO, MAX_PER_DAY, MAX_PER_MINUTE, Limits
from gateway.limits.priorities import MAX_SHARE
from storage.tables.core import created_at, metadata

# No foreign keys: a subject may be an organization, a project or a key.
limits = Table(
    "limits",
    metadata,
    Column("level", Text, nullable=False),
    Column("subject_id", UUID(), nullable=False),
    Column("tier", Text),
    *(Column(name, BigInteger) for name in Limits.__struct_fields__),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    created_at(),
    UniqueConstraint("subject_id", "level", "tier", postgresql_nulls_not_distinct=True),
    CheckConstraint("level IN ('organization', 'project', 'key')", name="level"),
    CheckConstraint("tier IN ('autocomplete', 'chat')", name="tier"),
    *(
        CheckConstraint(f"{column} BETWEEN 1 AND {MAX_PER_MINUTE}", name=column)
        for column in Limits.__struct_fields__
        if column not in ("tokens_per_day", "money_micro_per_month")
    ),
    CheckConstraint(f"tokens_per_day BETWEEN 1 AND {MAX_PER_DAY}", name="tokens_per_day"),
    CheckConstraint(f"money_micro_per_month BETWEEN 0 AND {MAX_MICRO}", name="money_micro_per_month"),
)

priorities = Table(
    "priorities",
    metadata,
    Column("level", Text, nullable=False),
    Column("subject_id", UUID(), nullable=False),
    Column("tier", Text),
    Column("service_class", Text),
    Column("share", Integer),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    UniqueConstraint("subject_id", "level", "tier", postgresql_nulls_not_distinct=True),
    CheckConstraint("level IN ('organization', 'project', 'key')", name="level"),
    CheckConstraint("tier IN ('autocomplete', 'chat')", name="tier"),
    CheckConstraint("service_class IN ('offline', 'standard', 'interactive')", name="service_class"),
    CheckConstraint(f"share BETWEEN 1 AND {MAX_SHARE}", name="share"),
    CheckConstraint("level <> 'key' OR share IS NULL", name="key_share"),
    CheckConstraint("service_class IS NOT NULL OR share IS NOT NULL", name="said"),
)

# Gateways that must report before money is recounted. A gateway leaves with an empty journal, or is adopted.
limit_gateways = Table(
    "limit_gateways",
    metadata,
    Column("instance", Text, primary_key=True),
    Column("epoch", Text, nullable=False),
    Column("joined_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

# tier: '' for all tiers together.
budget_crossings = Table(
    "budget_crossings",
    metadata,
    Column("level", Text, primary_key=True),
    Column("subject_id", UUID(), primary_key=True),
    Column("tier", Text, primary_key=True),
    Column("month", Text, primary_key=True),
    Column("percent", BigInteger, primary_key=True, autoincrement=False),
    Column("organization_id", UUID(), nullable=False),
    Column("limit_micro", BigInteger, primary_key=True, autoincrement=False),
    Column("spent_micro", BigInteger, nullable=False),
    Column("crossed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "organization_id", "crossed_at"),
)
