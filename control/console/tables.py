"""The console's accounts and sessions."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
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
from sqlalchemy.dialects.postgresql import ARRAY, UUID

from control.console.schema import LinkKind, SignInMethod
from storage.tables.core import created_at, id_column, metadata, one_of
from storage.tables.tenants import principals

# A member's credentials. The person, their permissions and whether they are disabled are stored with the member alone.
console_accounts = Table(
    "console_accounts",
    metadata,
    id_column(),
    Column("principal_id", UUID(), ForeignKey(principals.c.id, ondelete="CASCADE"), nullable=False, unique=True),
    # argon2id of an HMAC of the password; null if the account signs in by a provider only.
    Column("password_hash", Text),
    # Sealed; in force once confirmed.
    Column("totp_secret", LargeBinary),
    Column("totp_confirmed_at", DateTime(timezone=True)),
    # The time step of the last accepted code: no code is accepted twice.
    Column("totp_last_step", BigInteger),
    # HMACs; a used one is removed.
    Column("recovery_hashes", ARRAY(LargeBinary), nullable=False, server_default=text("'{}'")),
    # The person's identity at a provider.
    Column("oidc_issuer", Text),
    Column("oidc_subject", Text),
    created_at(),
    CheckConstraint("totp_confirmed_at IS NULL OR totp_secret IS NOT NULL", name="totp"),
    CheckConstraint("(oidc_issuer IS NULL) = (oidc_subject IS NULL)", name="oidc"),
    Index(None, "oidc_issuer", "oidc_subject"),
)

console_sessions = Table(
    "console_sessions",
    metadata,
    id_column(),
    Column("account_id", UUID(), ForeignKey(console_accounts.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    Column("method", Text, nullable=False),
    # The network in which the session began.
    Column("network", Text, nullable=False),
    Column("user_agent", Text, nullable=False),
    created_at(),
    Column("last_seen_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    one_of("method", SignInMethod),
    CheckConstraint("octet_length(token_hash) = 32", name="token_hash"),
)

# One-time links; a used one is deleted.
console_links = Table(
    "console_links",
    metadata,
    id_column(),
    Column("hash", LargeBinary, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    # Null for the deployment's first owner, who is no member yet.
    Column("principal_id", UUID(), ForeignKey(principals.c.id, ondelete="CASCADE"), index=True),
    created_at(),
    Column("expires_at", DateTime(timezone=True), nullable=False, index=True),
    one_of("kind", LinkKind),
    CheckConstraint("(kind = 'first') = (principal_id IS NULL)", name="principal"),
    CheckConstraint("octet_length(hash) = 32", name="hash"),
)

# Failed attempts, by an HMAC of the e-mail address, whether an account has it or not, and of the network.
console_attempts = Table(
    "console_attempts",
    metadata,
    Column("subject", LargeBinary, primary_key=True),
    Column("failures", Integer, nullable=False),
    Column("last_at", DateTime(timezone=True), nullable=False, index=True),
    Column("locked_until", DateTime(timezone=True), nullable=False),
)
