"""The console: what members sign in with, where they are signed in, one-time links, attempts that failed."""

from __future__ import annotations

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE gateway.console_accounts (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    principal_id uuid NOT NULL UNIQUE REFERENCES gateway.principals (id) ON DELETE CASCADE,
    password_hash text,
    totp_secret bytea,
    totp_confirmed_at timestamptz,
    totp_last_step bigint,
    recovery_hashes bytea[] NOT NULL DEFAULT '{}',
    oidc_issuer text,
    oidc_subject text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT console_accounts_totp_check CHECK (totp_confirmed_at IS NULL OR totp_secret IS NOT NULL),
    CONSTRAINT console_accounts_oidc_check CHECK ((oidc_issuer IS NULL) = (oidc_subject IS NULL))
);
CREATE INDEX console_accounts_oidc_issuer_oidc_subject_idx ON gateway.console_accounts (oidc_issuer, oidc_subject);

CREATE TABLE gateway.console_sessions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    account_id uuid NOT NULL REFERENCES gateway.console_accounts (id) ON DELETE CASCADE,
    token_hash bytea NOT NULL UNIQUE,
    method text NOT NULL,
    network text NOT NULL,
    user_agent text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT console_sessions_method_check CHECK (method IN ('password', 'oidc', 'link')),
    CONSTRAINT console_sessions_token_hash_check CHECK (octet_length(token_hash) = 32)
);
CREATE INDEX console_sessions_account_id_idx ON gateway.console_sessions (account_id);
CREATE INDEX console_sessions_expires_at_idx ON gateway.console_sessions (expires_at);

CREATE TABLE gateway.console_links (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    hash bytea NOT NULL UNIQUE,
    kind text NOT NULL,
    principal_id uuid REFERENCES gateway.principals (id) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    CONSTRAINT console_links_kind_check CHECK (kind IN ('first', 'invitation', 'reset')),
    CONSTRAINT console_links_principal_check CHECK ((kind = 'first') = (principal_id IS NULL)),
    CONSTRAINT console_links_hash_check CHECK (octet_length(hash) = 32)
);
CREATE INDEX console_links_principal_id_idx ON gateway.console_links (principal_id);
CREATE INDEX console_links_expires_at_idx ON gateway.console_links (expires_at);

CREATE TABLE gateway.console_attempts (
    subject bytea PRIMARY KEY,
    failures integer NOT NULL,
    last_at timestamptz NOT NULL,
    locked_until timestamptz NOT NULL
);
CREATE INDEX console_attempts_last_at_idx ON gateway.console_attempts (last_at);
CREATE INDEX principals_member_email_idx ON gateway.principals (lower(email)) WHERE kind = 'member';
"""


def upgrade() -> None:
    op.execute(TABLES)


def downgrade() -> None:
    op.execute("DROP INDEX gateway.principals_member_email_idx")
    for table in ("console_attempts", "console_links", "console_sessions", "console_accounts"):
        op.execute(f"DROP TABLE gateway.{table}")
