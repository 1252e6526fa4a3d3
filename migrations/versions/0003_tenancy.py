"""Disabled tenants, access to models, key scopes and rotation, principals, admin keys."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = """
ALTER TABLE gateway.organizations
    ADD COLUMN operator boolean DEFAULT false NOT NULL,
    ADD COLUMN disabled_at timestamptz;
CREATE UNIQUE INDEX organizations_operator_key ON gateway.organizations (operator) WHERE operator;
CREATE INDEX organizations_created_at_id_idx ON gateway.organizations (created_at, id);

ALTER TABLE gateway.projects
    ADD COLUMN models text[],
    ADD COLUMN tiers text[],
    ADD COLUMN disabled_at timestamptz;
CREATE INDEX projects_organization_id_created_at_id_idx ON gateway.projects (organization_id, created_at, id);

ALTER TABLE gateway.api_keys
    ADD COLUMN scopes text[],
    ADD COLUMN previous_hash bytea,
    ADD COLUMN previous_expires_at timestamptz,
    ADD CONSTRAINT api_keys_previous_hash_key UNIQUE (previous_hash),
    ADD CONSTRAINT api_keys_previous_hash_check CHECK (octet_length(previous_hash) = 32),
    ADD CONSTRAINT api_keys_previous_check CHECK ((previous_hash IS NULL) = (previous_expires_at IS NULL));
CREATE INDEX api_keys_project_id_created_at_id_idx ON gateway.api_keys (project_id, created_at, id);

CREATE TABLE gateway.principals (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    organization_id uuid NOT NULL,
    kind text NOT NULL,
    email text,
    name text NOT NULL,
    role text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    disabled_at timestamptz,
    CONSTRAINT principals_pkey PRIMARY KEY (id),
    CONSTRAINT principals_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id),
    CONSTRAINT principals_kind_check CHECK (kind IN ('member', 'service_account')),
    CONSTRAINT principals_role_check CHECK (role IN ('owner', 'admin', 'developer', 'viewer', 'billing')),
    CONSTRAINT principals_email_check CHECK ((kind = 'member') = (email IS NOT NULL))
);
CREATE UNIQUE INDEX principals_email_key ON gateway.principals (organization_id, lower(email))
    WHERE kind = 'member';
CREATE UNIQUE INDEX principals_name_key ON gateway.principals (organization_id, name)
    WHERE kind = 'service_account';
CREATE INDEX principals_organization_id_created_at_id_idx
    ON gateway.principals (organization_id, created_at, id);

CREATE TABLE gateway.admin_keys (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    principal_id uuid NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    display text NOT NULL,
    previous_hash bytea,
    previous_expires_at timestamptz,
    created_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    CONSTRAINT admin_keys_pkey PRIMARY KEY (id),
    CONSTRAINT admin_keys_principal_id_fkey
        FOREIGN KEY (principal_id) REFERENCES gateway.principals (id) ON DELETE CASCADE,
    CONSTRAINT admin_keys_hash_key UNIQUE (hash),
    CONSTRAINT admin_keys_previous_hash_key UNIQUE (previous_hash),
    CONSTRAINT admin_keys_hash_check CHECK (octet_length(hash) = 32),
    CONSTRAINT admin_keys_previous_hash_check CHECK (octet_length(previous_hash) = 32),
    CONSTRAINT admin_keys_previous_check CHECK ((previous_hash IS NULL) = (previous_expires_at IS NULL))
);
CREATE INDEX admin_keys_principal_id_idx ON gateway.admin_keys (principal_id);
"""

# The announcement of a disabled project names no keys but all: a key inserted at the same moment would be missed by a
# list of the project's keys, and stay in a gateway's memory as it was.
TRIGGERS = """
CREATE OR REPLACE FUNCTION gateway.notify_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
        PERFORM pg_notify('slipstream_keys', encode(OLD.hash, 'hex'));
        IF OLD.previous_hash IS NOT NULL THEN
            PERFORM pg_notify('slipstream_keys', encode(OLD.previous_hash, 'hex'));
        END IF;
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        PERFORM pg_notify('slipstream_keys', encode(NEW.hash, 'hex'));
        IF NEW.previous_hash IS NOT NULL THEN
            PERFORM pg_notify('slipstream_keys', encode(NEW.previous_hash, 'hex'));
        END IF;
    END IF;
    RETURN NULL;
END
$$;

DROP TRIGGER projects_notify ON gateway.projects;
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW
    WHEN ((OLD.organization_id, OLD.models, OLD.tiers, OLD.disabled_at)
        IS DISTINCT FROM (NEW.organization_id, NEW.models, NEW.tiers, NEW.disabled_at))
    EXECUTE FUNCTION gateway.notify_all_keys();

CREATE TRIGGER organizations_notify AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (OLD.disabled_at IS DISTINCT FROM NEW.disabled_at)
    EXECUTE FUNCTION gateway.notify_all_keys();
"""

DOWN = """
DROP TRIGGER organizations_notify ON gateway.organizations;
DROP TRIGGER projects_notify ON gateway.projects;
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW WHEN (OLD.organization_id IS DISTINCT FROM NEW.organization_id)
    EXECUTE FUNCTION gateway.notify_all_keys();
CREATE OR REPLACE FUNCTION gateway.notify_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
        PERFORM pg_notify('slipstream_keys', encode(OLD.hash, 'hex'));
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        PERFORM pg_notify('slipstream_keys', encode(NEW.hash, 'hex'));
    END IF;
    RETURN NULL;
END
$$;

DROP TABLE gateway.admin_keys, gateway.principals;
DROP INDEX gateway.api_keys_project_id_created_at_id_idx;
ALTER TABLE gateway.api_keys
    DROP CONSTRAINT api_keys_previous_check,
    DROP COLUMN previous_expires_at,
    DROP COLUMN previous_hash,
    DROP COLUMN scopes;
DROP INDEX gateway.projects_organization_id_created_at_id_idx;
ALTER TABLE gateway.projects DROP COLUMN disabled_at, DROP COLUMN tiers, DROP COLUMN models;
DROP INDEX gateway.organizations_created_at_id_idx, gateway.organizations_operator_key;
ALTER TABLE gateway.organizations DROP COLUMN disabled_at, DROP COLUMN operator;
"""


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(TRIGGERS)


def downgrade() -> None:
    op.execute(DOWN)
