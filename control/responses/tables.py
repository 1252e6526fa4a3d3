"""Tables of the responses and conversations that clients of the Responses API store, to continue and reread them.

Clients request it with each request (`store`), whatever their organization's `store_prompts` is. The gateway writes,
reads, bounds and deletes rows (gateway/responses/); the worker deletes them after the retention of requests.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import UUID

from storage.tables.core import created_at, metadata

responses = Table(
    "responses",
    metadata,
    Column("id", Text(collation="C"), primary_key=True),
    Column("organization_id", UUID(), ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    # Only keys of this project find the row.
    Column("project_id", UUID(), nullable=False),
    # No foreign key: a response may outlive the previous one, and is then found, but not continued.
    Column("previous_id", Text(collation="C")),
    # JSON: the request's own items, each with an id, and the response object. Not jsonb, which lacks U+0000.
    Column("input", LargeBinary, nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # queued, in_progress, failed or cancelled for a background response without output; null once it has its output.
    Column("status", Text),
    Index(None, "recorded_at", postgresql_using="brin"),
    Index(None, "organization_id", "recorded_at", "id", postgresql_include=["size_bytes"]),
)

# One row for each unfinished background response, which the worker leases.
background_responses = Table(
    "background_responses",
    metadata,
    Column("id", Text(collation="C"), ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("organization_id", UUID(), nullable=False, index=True),
    Column("key_id", UUID(), nullable=False),
    # The conversation that the response extends; no other response may continue it meanwhile.
    Column("conversation_id", Text(collation="C"), unique=True),
    # JSON, as the gateway accepts it.
    Column("request", LargeBinary, nullable=False),
    # Runs that failed through the platform's fault. Each counts from its beginning until it ends in another way.
    Column("failures", SmallInteger, nullable=False, server_default=text("0")),
    Column("lease_id", UUID()),
    Column("lease_until", DateTime(timezone=True)),
    Column("turn_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    # Number of the run's first event; null if the response is not streamed.
    Column("next_event", Integer),
)

# Events of a streamed background response, several to a row, from its newest run and its end.
response_events = Table(
    "response_events",
    metadata,
    Column("response_id", Text(collation="C"), ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    # The number of the first event, and the number after the last.
    Column("first", Integer, primary_key=True, autoincrement=False),
    Column("next", Integer, nullable=False),
    # As clients receive them.
    Column("events", LargeBinary, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", Text(collation="C"), primary_key=True),
    Column("organization_id", UUID(), ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    Column("project_id", UUID(), nullable=False),
    # JSON, as above.
    Column("metadata", LargeBinary, nullable=False),
    # Sums over its items.
    Column("items", Integer, nullable=False, server_default=text("0")),
    Column("size_bytes", Integer, nullable=False, server_default=text("0")),
    created_at(),
    Column("used_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "organization_id", "used_at", "id", postgresql_include=["size_bytes"]),
)

conversation_items = Table(
    "conversation_items",
    metadata,
    Column(
        "conversation_id", Text(collation="C"), ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True
    ),
    Column("id", Text(collation="C"), primary_key=True),
    Column("position", BigInteger, Identity(always=True), nullable=False),
    Column("item", LargeBinary, nullable=False),
)
