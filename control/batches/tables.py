"""Files of batches, batches, and the results of their lines until both files are written."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from control.batches.machine import UNFINISHED, BatchStatus
from storage.tables.core import created_at, metadata, one_of


def _owner() -> list[Column[object]]:
    return [Column(name, UUID(), nullable=False) for name in ("organization_id", "project_id", "key_id")]


def _moment(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True))


def _count(name: str, kind: type[Integer] | type[BigInteger] = Integer) -> Column[object]:
    return Column(name, kind, nullable=False, server_default=text("0"))


files = Table(
    "files",
    metadata,
    Column("id", Text, primary_key=True),
    *_owner(),
    Column("purpose", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    created_at(),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    # False while the file is written or removed. If it stays false after a crash, upkeep removes the file.
    Column("stored", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint("purpose IN ('batch', 'batch_output')", name="purpose"),
    CheckConstraint("bytes >= 0", name="bytes"),
    Index(None, "project_id", "created_at", "id"),
    Index(None, "organization_id"),
)

_UNFINISHED = ", ".join(f"'{status}'" for status in UNFINISHED)

batches = Table(
    "batches",
    metadata,
    Column("id", Text, primary_key=True),
    *_owner(),
    Column("endpoint", Text, nullable=False),
    Column("input_file_id", Text, nullable=False),
    Column("metadata", JSONB),
    # How long its files are kept.
    Column("output_seconds", Integer, nullable=False),
    Column("status", Text, nullable=False),
    created_at(),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    _moment("in_progress_at"),
    _moment("finalizing_at"),
    _moment("cancelling_at"),
    _moment("completed_at"),
    _moment("failed_at"),
    # Set with `finalizing_at` if the window ended first.
    _moment("expired_at"),
    _moment("cancelled_at"),
    Column("errors", JSONB),
    Column("model", Text),
    _count("total"),
    _count("completed"),
    _count("failed"),
    _count("prompt_tokens", BigInteger),
    _count("cached_tokens", BigInteger),
    _count("completion_tokens", BigInteger),
    _count("reasoning_tokens", BigInteger),
    # Chosen with the batch's id, so that a step that is repeated after a crash writes the same files.
    Column("output_file_id", Text, nullable=False),
    Column("error_file_id", Text, nullable=False),
    Column("lease_id", UUID()),
    _moment("lease_until"),
    # When a worker last claimed the batch.
    Column("turn_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    one_of("status", BatchStatus),
    CheckConstraint("completed >= 0 AND failed >= 0 AND completed + failed <= total", name="lines"),
    Index(None, "project_id", "created_at", "id"),
    Index("batches_unfinished_idx", "organization_id", postgresql_where=text(f"status IN ({_UNFINISHED})")),
)

batch_results = Table(
    "batch_results",
    metadata,
    Column("batch_id", Text, ForeignKey(batches.c.id), primary_key=True),
    Column("line", Integer, primary_key=True, autoincrement=False),
    # Whether the line is in the output file and not in the error file.
    Column("ok", Boolean, nullable=False),
    # The line in that file, without the line break.
    Column("content", LargeBinary, nullable=False),
)
