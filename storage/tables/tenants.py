"""Administrators: members and service accounts of organizations, and their admin keys."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, ForeignKey, Index, Table, Text, func, text
from sqlalchemy.dialects.postgresql import UUID

from storage.roles import PrincipalKind, Role
from storage.tables.core import created_at, id_column, key_columns, metadata, one_of, organizations

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
# People sign in to the console with their e-mail address, in any organization.
Index("principals_member_email_idx", func.lower(principals.c.email), postgresql_where=text("kind = 'member'"))
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
    *key_columns(),
    Column("principal_id", UUID(), ForeignKey(principals.c.id, ondelete="CASCADE"), nullable=False, index=True),
)
