"""Tables of the admin API: answers kept for repeated requests, webhooks and their log."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from storage.tables.core import created_at, id_column, metadata, one_of, organizations


class DeliveryState(StrEnum):
    """The state of an event's delivery to one webhook."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("principal_id", UUID(), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    # The run that holds the key: a run that was presumed dead must not finish after another replaced it.
    Column("run_id", UUID(), nullable=False),
    Column("started_at", DateTime(timezone=True), nullable=False, server_default=func.now(), index=True),
    # Null while the first request is running.
    Column("status", SmallInteger),
    # Sealed, as it may contain a secret that is shown once.
    Column("answer", LargeBinary),
)

webhooks = Table(
    "webhooks",
    metadata,
    id_column(),
    Column("organization_id", UUID(), ForeignKey(organizations.c.id), nullable=False),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False),
    # Null for all.
    Column("events", ARRAY(Text)),
    # Sealed.
    Column("secret", LargeBinary, nullable=False),
    Column("previous_secret", LargeBinary),
    Column("previous_secret_expires_at", DateTime(timezone=True)),
    created_at(),
    Column("disabled_at", DateTime(timezone=True)),
    CheckConstraint("(previous_secret IS NULL) = (previous_secret_expires_at IS NULL)", name="previous"),
    Index(None, "organization_id", "created_at", "id"),
)

# The outbox: every change with an event inserts it here, in the same transaction (webhooks/outbox.py).
webhook_events = Table(
    "webhook_events",
    metadata,
    id_column(),
    Column("organization_id", UUID(), nullable=False),
    Column("type", Text, nullable=False),
    Column("data", JSONB, nullable=False),
    # A second event of the organization with the same text is not recorded.
    Column("once", Text),
    # Null for all webhooks that subscribe to the type.
    Column("to_webhook_id", UUID()),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now(), index=True),
    UniqueConstraint("organization_id", "once"),
)

# One row for each event and each webhook that it goes to, created by a trigger on webhook_events.
webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    id_column(),
    Column("webhook_id", UUID(), ForeignKey(webhooks.c.id, ondelete="CASCADE"), nullable=False),
    Column("event_id", UUID(), ForeignKey(webhook_events.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("state", Text, nullable=False, server_default=text("'pending'")),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
    Column("next_attempt_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    created_at(),
    one_of("state", DeliveryState),
    Index(
        "webhook_deliveries_pending_idx", "webhook_id", "next_attempt_at", postgresql_where=text("state = 'pending'")
    ),
    Index(None, "webhook_id", "created_at", "id"),
)

webhook_attempts = Table(
    "webhook_attempts",
    metadata,
    Column("delivery_id", UUID(), ForeignKey(webhook_deliveries.c.id, ondelete="CASCADE"), primary_key=True),
    Column("attempt", SmallInteger, primary_key=True, autoincrement=False),
    Column("at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("status", SmallInteger),
    Column("error", Text),
    Column("duration_ms", Double, nullable=False),
)
