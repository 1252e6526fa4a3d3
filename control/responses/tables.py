"""Responses that clients of the Responses API had stored, for `previous_response_id` and for reading them again.

Clients ask for it with each request (`store`), whatever their organization's `store_prompts` says. The gateway writes,
reads, bounds and deletes rows (gateway/responses/store.py); the worker deletes them after the retention of requests.
"""

from __future__ import annotations

from sqlalchemy import Column, DateTime, ForeignKey, Index, Integer, LargeBinary, Table, Text, func
from sqlalchemy.dialects.postgresql import UUID

from storage.tables.core import metadata

responses = Table(
    "responses",
    metadata,
    Column("id", Text(collation="C"), primary_key=True),
    Column("organization_id", UUID(), ForeignKey("organizations.id", ondelete="CASCADE"), nullable=False),
    # Only keys of this project find the row.
    Column("project_id", UUID(), nullable=False),
    # No foreign key: a response may outlive the one before it, and is then found, but not continued.
    Column("previous_id", Text(collation="C")),
    # JSON: the request's own items, each with an id, and the response object. Not jsonb, which lacks U+0000.
    Column("input", LargeBinary, nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
    Index(None, "organization_id", "recorded_at", "id", postgresql_include=["size_bytes"]),
)
