"""Tenants, projects, keys, desired state, the ledger and its hourly roll-up.

Written by hand and never edited once released. The values in the CHECKs are those of contracts/usage.py on the day
it was written; a new value is a new migration.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE SCHEMA gateway;

CREATE TABLE gateway.organizations (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    name text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT organizations_pkey PRIMARY KEY (id),
    CONSTRAINT organizations_name_key UNIQUE (name)
);

CREATE TABLE gateway.projects (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    organization_id uuid NOT NULL,
    name text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT projects_pkey PRIMARY KEY (id),
    CONSTRAINT projects_organization_id_name_key UNIQUE (organization_id, name),
    CONSTRAINT projects_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id)
);

CREATE TABLE gateway.api_keys (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    project_id uuid NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    display text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    requests_per_minute integer,
    tokens_per_minute integer,
    max_concurrency integer,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_hash_key UNIQUE (hash),
    CONSTRAINT api_keys_project_id_fkey FOREIGN KEY (project_id) REFERENCES gateway.projects (id),
    CONSTRAINT api_keys_hash_check CHECK (octet_length(hash) = 32),
    CONSTRAINT api_keys_requests_per_minute_check CHECK (requests_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT api_keys_tokens_per_minute_check CHECK (tokens_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT api_keys_max_concurrency_check CHECK (max_concurrency BETWEEN 1 AND 1000000000)
);
CREATE INDEX api_keys_project_id_idx ON gateway.api_keys (project_id);

CREATE TABLE gateway.desired_states (
    version bigint NOT NULL,
    document jsonb NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT desired_states_pkey PRIMARY KEY (version),
    CONSTRAINT desired_states_version_check CHECK (version > 0)
);

CREATE TABLE gateway.usage_events (
    request_id text NOT NULL,
    attempt smallint NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    endpoint text NOT NULL,
    pool text,
    replica_id text,
    stream boolean NOT NULL,
    prompt_tokens integer NOT NULL,
    cached_tokens integer NOT NULL,
    completion_tokens integer NOT NULL,
    reasoning_tokens integer NOT NULL,
    outcome text NOT NULL,
    finish text NOT NULL,
    billed boolean NOT NULL,
    status smallint,
    error_code text,
    phases_ms jsonb NOT NULL,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    gateway_id text NOT NULL,
    CONSTRAINT usage_events_pkey PRIMARY KEY (request_id, attempt),
    CONSTRAINT usage_events_outcome_check CHECK (outcome IN ('exact', 'lower_bound', 'unknown')),
    CONSTRAINT usage_events_finish_check
        CHECK (finish IN ('complete', 'client_gone', 'engine_error', 'not_placed', 'gateway_crash'))
);
CREATE UNIQUE INDEX usage_events_one_billed_attempt_idx ON gateway.usage_events (request_id) WHERE billed;
CREATE INDEX usage_events_organization_id_closed_at_idx ON gateway.usage_events (organization_id, closed_at);
CREATE INDEX usage_events_key_id_closed_at_idx ON gateway.usage_events (key_id, closed_at);
CREATE INDEX usage_events_closed_at_idx ON gateway.usage_events USING brin (closed_at);
CREATE INDEX usage_events_recorded_at_idx ON gateway.usage_events USING brin (recorded_at);

CREATE TABLE gateway.usage_hourly (
    hour timestamptz NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    computed_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT usage_hourly_pkey PRIMARY KEY (hour, organization_id, project_id, key_id, model, tier)
);
"""

# A write of last_used_at alone says nothing: it changes no answer and would empty every gateway's cache once a minute.
KEY_TRIGGERS = """
CREATE FUNCTION gateway.notify_key() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE FUNCTION gateway.notify_all_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_keys', '*');
    RETURN NULL;
END
$$;

CREATE TRIGGER api_keys_notify AFTER INSERT OR DELETE ON gateway.api_keys
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_key();

CREATE TRIGGER api_keys_notify_update AFTER UPDATE ON gateway.api_keys
    FOR EACH ROW
    WHEN (to_jsonb(OLD) - 'last_used_at' IS DISTINCT FROM to_jsonb(NEW) - 'last_used_at')
    EXECUTE FUNCTION gateway.notify_key();

CREATE TRIGGER api_keys_notify_truncate AFTER TRUNCATE ON gateway.api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_all_keys();

CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW WHEN (OLD.organization_id IS DISTINCT FROM NEW.organization_id)
    EXECUTE FUNCTION gateway.notify_all_keys();
"""

DESIRED_TRIGGERS = """
CREATE FUNCTION gateway.notify_desired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_desired', NEW.version::text);
    RETURN NULL;
END
$$;

CREATE TRIGGER desired_states_notify AFTER INSERT OR UPDATE ON gateway.desired_states
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_desired();
"""

DOWN = """
DROP TABLE gateway.usage_hourly, gateway.usage_events, gateway.desired_states,
    gateway.api_keys, gateway.projects, gateway.organizations;
DROP FUNCTION gateway.notify_key(), gateway.notify_all_keys(), gateway.notify_desired();
DROP SCHEMA gateway;
"""


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(KEY_TRIGGERS)
    op.execute(DESIRED_TRIGGERS)


def downgrade() -> None:
    op.execute(DOWN)
