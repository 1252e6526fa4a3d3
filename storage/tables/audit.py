"""The audit log's table."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, DateTime, Index, LargeBinary, Table, Text
from sqlalchemy.dialects.postgresql import JSONB, UUID

from storage.actor_kind import ActorKind
from storage.tables.core import metadata, one_of

# Triggers make it append-only, and set id, at and both hashes. No foreign keys: it outlives its subjects.
audit_log = Table(
    "audit_log",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("actor_kind", Text, nullable=False),
    Column("actor_id", UUID()),
    Column("actor_name", Text, nullable=False),
    Column("admin_key_id", UUID()),
    Column("request_id", Text),
    # The organization that the change concerns; null for the deployment.
    Column("organization_id", UUID()),
    Column("action", Text, nullable=False),
    Column("subject_kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("before", JSONB),
    Column("after", JSONB),
    Column("previous_hash", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    one_of("actor_kind", ActorKind),
    Index(None, "organization_id", "id"),
    Index(None, "subject_id", "id"),
)
