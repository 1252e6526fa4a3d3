"""The gateway's tables, all in the PostgreSQL schema `gateway`.

This is the shape that queries are written against; `migrations/` creates it by hand-written steps and a test keeps the
two equal. Times are `timestamptz`, identifiers UUIDs, and only the ledger knows token counts.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID

from contracts.usage import Finish, Outcome

SCHEMA = "gateway"
KEYS_CHANNEL = "slipstream_keys"
"""Notified with the hex of a key's hash when that key changed, with `*` when any may have."""
DESIRED_CHANNEL = "slipstream_desired"
"""Notified with the number of a new desired-state version."""

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    },
)


def one_of(column: str, kind: type[StrEnum]) -> CheckConstraint:
    """The column holds one of the enumeration's values."""
    values = ", ".join(f"'{member.value}'" for member in kind)
    return CheckConstraint(f"{column} IN ({values})", name=column)


def created_at() -> Column[object]:
    """When the row was made."""
    return Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now())


def id_column() -> Column[object]:
    """A random UUID as primary key."""
    return Column("id", UUID(), primary_key=True, server_default=text("gen_random_uuid()"))


organizations = Table(
    "organizations",
    metadata,
    id_column(),
    Column("name", Text, nullable=False, unique=True),
    created_at(),
    # The one whose members run the deployment: their roles hold for every organization.
    Column("operator", Boolean, nullable=False, server_default=text("false")),
    Column("disabled_at", DateTime(timezone=True)),
    Index("organizations_operator_key", "operator", unique=True, postgresql_where=text("operator")),
    Index(None, "created_at", "id"),
)

projects = Table(
    "projects",
    metadata,
    id_column(),
    Column("organization_id", UUID(), ForeignKey(organizations.c.id), nullable=False),
    Column("name", Text, nullable=False),
    created_at(),
    # Names of models and tiers its keys may use; null: all.
    Column("models", ARRAY(Text)),
    Column("tiers", ARRAY(Text)),
    Column("disabled_at", DateTime(timezone=True)),
    UniqueConstraint("organization_id", "name"),
    Index(None, "organization_id", "created_at", "id"),
)

api_keys = Table(
    "api_keys",
    metadata,
    id_column(),
    Column("project_id", UUID(), ForeignKey(projects.c.id), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("display", Text, nullable=False),
    created_at(),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
    # A limit that is null does not limit; the largest is that of gateway/limits/key_limits.py.
    Column("requests_per_minute", Integer),
    Column("tokens_per_minute", Integer),
    Column("max_concurrency", Integer),
    # What the key may be used for (gateway/auth/scopes.py); null: everything.
    Column("scopes", ARRAY(Text)),
    # After a rotation: the secret before, which still opens until then.
    Column("previous_hash", LargeBinary, unique=True),
    Column("previous_expires_at", DateTime(timezone=True)),
    Index(None, "project_id", "created_at", "id"),
    CheckConstraint("octet_length(hash) = 32", name="hash"),
    CheckConstraint("octet_length(previous_hash) = 32", name="previous_hash"),
    CheckConstraint("(previous_hash IS NULL) = (previous_expires_at IS NULL)", name="previous"),
    CheckConstraint("requests_per_minute BETWEEN 1 AND 1000000000", name="requests_per_minute"),
    CheckConstraint("tokens_per_minute BETWEEN 1 AND 1000000000", name="tokens_per_minute"),
    CheckConstraint("max_concurrency BETWEEN 1 AND 1000000000", name="max_concurrency"),
)

desired_states = Table(
    "desired_states",
    metadata,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("document", JSONB, nullable=False),
    created_at(),
    CheckConstraint("version > 0", name="version"),
)

# No foreign keys: the ledger outlives the keys it names, and a row must never wait for another table's lock.
usage_events = Table(
    "usage_events",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("attempt", SmallInteger, primary_key=True, autoincrement=False),
    Column("organization_id", UUID(), nullable=False),
    Column("project_id", UUID(), nullable=False),
    Column("key_id", UUID(), nullable=False),
    Column("model", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("endpoint", Text, nullable=False),
    Column("pool", Text),
    Column("replica_id", Text),
    Column("stream", Boolean, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("reasoning_tokens", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("finish", Text, nullable=False),
    # Said by the writer, not derived: a failed attempt's tokens are recorded, only the answered attempt's are billed.
    Column("billed", Boolean, nullable=False),
    Column("status", SmallInteger),
    Column("error_code", Text),
    Column("phases_ms", JSONB, nullable=False),
    Column("opened_at", DateTime(timezone=True), nullable=False),
    Column("closed_at", DateTime(timezone=True), nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("gateway_id", Text, nullable=False),
    one_of("outcome", Outcome),
    one_of("finish", Finish),
    Index("usage_events_one_billed_attempt_idx", "request_id", unique=True, postgresql_where=text("billed")),
    Index(None, "organization_id", "closed_at"),
    Index(None, "key_id", "closed_at"),
    # Rows arrive nearly in order of time, so a BRIN index finds an hour at almost no cost per row written.
    Index(None, "closed_at", postgresql_using="brin"),
    Index(None, "recorded_at", postgresql_using="brin"),
)

usage_hourly = Table(
    "usage_hourly",
    metadata,
    Column("hour", DateTime(timezone=True), primary_key=True),
    Column("organization_id", UUID(), primary_key=True),
    Column("project_id", UUID(), primary_key=True),
    Column("key_id", UUID(), primary_key=True),
    Column("model", Text, primary_key=True),
    Column("tier", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("computed_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)

# Where each request's time went; written best effort, apart from the ledger, once the client has its last byte.
request_traces = Table(
    "request_traces",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("organization_id", UUID(), nullable=False),
    Column("client_request_id", Text),
    Column("status", SmallInteger, nullable=False),
    Column("error_code", Text),
    Column("total_ms", Double, nullable=False),
    Column("phases_ms", JSONB, nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Index(None, "recorded_at", postgresql_using="brin"),
)
