"""Who may administer: members and service accounts of organizations, and their admin keys."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, ForeignKey, Index, LargeBinary, Table, Text, func, text
from sqlalchemy.dialects.postgresql import UUID

from gateway.db.tables import created_at, id_column, metadata, one_of, organizations
from gateway.tenants.roles import PrincipalKind, Role

principals = Table(
    "principals",
    metadata,
    id_column(),
    Column("organization_id", UUID(), ForeignKey(organizations.c.id), nullable=False),
    Column("kind", Text, nullable=False),
    Column("email", Text),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    created_at(),
    Column("disabled_at", DateTime(timezone=True)),
    one_of("kind", PrincipalKind),
    one_of("role", Role),
    CheckConstraint("(kind = 'member') = (email IS NOT NULL)", name="email"),
    Index(None, "organization_id", "created_at", "id"),
)
Index(
    "principals_email_key",
    principals.c.organization_id,
    func.lower(principals.c.email),
    unique=True,
    postgresql_where=text("kind = 'member'"),
)
Index(
    "principals_name_key",
    principals.c.organization_id,
    principals.c.name,
    unique=True,
    postgresql_where=text("kind = 'service_account'"),
)

admin_keys = Table(
    "admin_keys",
    metadata,
    id_column(),
    Column("principal_id", UUID(), ForeignKey(principals.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("display", Text, nullable=False),
    Column("previous_hash", LargeBinary, unique=True),
    Column("previous_expires_at", DateTime(timezone=True)),
    created_at(),
    Column("expires_at", DateTime(timezone=True)),
    Column("revoked_at", DateTime(timezone=True)),
    Column("last_used_at", DateTime(timezone=True)),
    CheckConstraint("octet_length(hash) = 32", name="hash"),
    CheckConstraint("octet_length(previous_hash) = 32", name="previous_hash"),
    CheckConstraint("(previous_hash IS NULL) = (previous_expires_at IS NULL)", name="previous"),
)
