"""Audit log, idempotency keys, webhooks, and who was refused by what among the traces."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

AUDIT = """
CREATE TABLE gateway.audit_log (
    id bigint NOT NULL,
    at timestamptz NOT NULL,
    actor_kind text NOT NULL,
    actor_id uuid,
    actor_name text NOT NULL,
    admin_key_id uuid,
    request_id text,
    organization_id uuid,
    action text NOT NULL,
    subject_kind text NOT NULL,
    subject_id text NOT NULL,
    before jsonb,
    after jsonb,
    previous_hash bytea NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT audit_log_pkey PRIMARY KEY (id),
    CONSTRAINT audit_log_actor_kind_check CHECK (actor_kind IN ('member', 'service_account', 'command'))
);
CREATE INDEX audit_log_organization_id_id_idx ON gateway.audit_log (organization_id, id);
CREATE INDEX audit_log_subject_id_id_idx ON gateway.audit_log (subject_id, id);

-- Every field with its length before it, so that no two rows have the same text. control/audit/chain.py
-- computes the same in Python: verifying must not trust this function.
CREATE FUNCTION gateway.audit_text(entry gateway.audit_log) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(coalesce(octet_length(field) || ':' || field, '-'), ',' ORDER BY position)
      FROM unnest(ARRAY[
        entry.id::text, (extract(epoch FROM entry.at) * 1000000)::bigint::text, entry.actor_kind, entry.actor_id::text,
        entry.actor_name, entry.admin_key_id::text, entry.request_id, entry.organization_id::text, entry.action,
        entry.subject_kind, entry.subject_id, entry.before::text, entry.after::text
      ]) WITH ORDINALITY AS fields (field, position)
$$;

-- Number, time and hashes are given here and not by the writer. The lock is held until the writer commits, so the next
-- one sees this row as the last.
CREATE FUNCTION gateway.chain_audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last gateway.audit_log;
BEGIN
    PERFORM pg_advisory_xact_lock(1635083369);
    SELECT * INTO last FROM gateway.audit_log ORDER BY id DESC LIMIT 1;
    NEW.id := coalesce(last.id, 0) + 1;
    NEW.at := clock_timestamp();
    NEW.previous_hash := coalesce(last.hash, decode(repeat('00', 32), 'hex'));
    NEW.hash := sha256(NEW.previous_hash || convert_to(gateway.audit_text(NEW), 'UTF8'));
    RETURN NEW;
END
$$;

CREATE FUNCTION gateway.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'gateway.audit_log is append-only: % refused', TG_OP;
END
$$;

CREATE TRIGGER audit_log_chain BEFORE INSERT ON gateway.audit_log
    FOR EACH ROW EXECUTE FUNCTION gateway.chain_audit();
CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE ON gateway.audit_log
    FOR EACH ROW EXECUTE FUNCTION gateway.refuse_audit_change();
CREATE TRIGGER audit_log_append_only_truncate BEFORE TRUNCATE ON gateway.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_audit_change();
"""

IDEMPOTENCY = """
CREATE TABLE gateway.idempotency_keys (
    principal_id uuid NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    run_id uuid NOT NULL,
    started_at timestamptz DEFAULT now() NOT NULL,
    status smallint,
    answer bytea,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (principal_id, key)
);
CREATE INDEX idempotency_keys_started_at_idx ON gateway.idempotency_keys (started_at);
"""

WEBHOOKS = """
CREATE TABLE gateway.webhooks (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    organization_id uuid NOT NULL,
    url text NOT NULL,
    description text NOT NULL,
    events text[],
    secret bytea NOT NULL,
    previous_secret bytea,
    previous_secret_expires_at timestamptz,
    created_at timestamptz DEFAULT now() NOT NULL,
    disabled_at timestamptz,
    CONSTRAINT webhooks_pkey PRIMARY KEY (id),
    CONSTRAINT webhooks_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id),
    CONSTRAINT webhooks_previous_check CHECK ((previous_secret IS NULL) = (previous_secret_expires_at IS NULL))
);
CREATE INDEX webhooks_organization_id_created_at_id_idx ON gateway.webhooks (organization_id, created_at, id);

CREATE TABLE gateway.webhook_events (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    organization_id uuid NOT NULL,
    type text NOT NULL,
    data jsonb NOT NULL,
    once text,
    to_webhook_id uuid,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT webhook_events_pkey PRIMARY KEY (id),
    CONSTRAINT webhook_events_organization_id_once_key UNIQUE (organization_id, once)
);
CREATE INDEX webhook_events_created_at_idx ON gateway.webhook_events (created_at);

CREATE TABLE gateway.webhook_deliveries (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    webhook_id uuid NOT NULL,
    event_id uuid NOT NULL,
    state text DEFAULT 'pending' NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    next_attempt_at timestamptz DEFAULT now() NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id),
    CONSTRAINT webhook_deliveries_webhook_id_fkey
        FOREIGN KEY (webhook_id) REFERENCES gateway.webhooks (id) ON DELETE CASCADE,
    CONSTRAINT webhook_deliveries_event_id_fkey
        FOREIGN KEY (event_id) REFERENCES gateway.webhook_events (id) ON DELETE CASCADE,
    CONSTRAINT webhook_deliveries_state_check CHECK (state IN ('pending', 'delivered', 'failed'))
);
CREATE INDEX webhook_deliveries_due_idx ON gateway.webhook_deliveries (next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_webhook_id_created_at_id_idx
    ON gateway.webhook_deliveries (webhook_id, created_at, id);
CREATE INDEX webhook_deliveries_event_id_idx ON gateway.webhook_deliveries (event_id);

CREATE TABLE gateway.webhook_attempts (
    delivery_id uuid NOT NULL,
    attempt smallint NOT NULL,
    at timestamptz DEFAULT now() NOT NULL,
    status smallint,
    error text,
    duration_ms double precision NOT NULL,
    CONSTRAINT webhook_attempts_pkey PRIMARY KEY (delivery_id, attempt),
    CONSTRAINT webhook_attempts_delivery_id_fkey
        FOREIGN KEY (delivery_id) REFERENCES gateway.webhook_deliveries (id) ON DELETE CASCADE
);

CREATE FUNCTION gateway.fan_out_webhook_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gateway.webhook_deliveries (webhook_id, event_id)
    SELECT id, NEW.id FROM gateway.webhooks
     WHERE organization_id = NEW.organization_id
       AND CASE WHEN NEW.to_webhook_id IS NULL
                THEN disabled_at IS NULL AND (events IS NULL OR NEW.type = ANY (events))
                ELSE id = NEW.to_webhook_id END;
    RETURN NULL;
END
$$;

CREATE TRIGGER webhook_events_fan_out AFTER INSERT ON gateway.webhook_events
    FOR EACH ROW EXECUTE FUNCTION gateway.fan_out_webhook_event();
"""

TRACES = """
ALTER TABLE gateway.request_traces
    ADD COLUMN project_id uuid,
    ADD COLUMN key_id uuid,
    ADD COLUMN endpoint text,
    ADD COLUMN model text,
    ADD COLUMN tier text,
    ADD COLUMN reason text,
    ADD COLUMN rule jsonb,
    ADD COLUMN counters jsonb;
CREATE INDEX request_traces_organization_id_request_id_idx ON gateway.request_traces (organization_id, request_id);
"""

DOWN = """
DROP INDEX gateway.request_traces_organization_id_request_id_idx;
ALTER TABLE gateway.request_traces
    DROP COLUMN counters, DROP COLUMN rule, DROP COLUMN reason, DROP COLUMN tier, DROP COLUMN model,
    DROP COLUMN endpoint, DROP COLUMN key_id, DROP COLUMN project_id;
DROP TABLE gateway.webhook_attempts, gateway.webhook_deliveries, gateway.webhook_events, gateway.webhooks;
DROP FUNCTION gateway.fan_out_webhook_event();
DROP TABLE gateway.idempotency_keys;
DROP FUNCTION gateway.audit_text(gateway.audit_log);
DROP TABLE gateway.audit_log;
DROP FUNCTION gateway.chain_audit(), gateway.refuse_audit_change();
"""


def upgrade() -> None:
    op.execute(AUDIT)
    op.execute(IDEMPOTENCY)
    op.execute(WEBHOOKS)
    op.execute(TRACES)


def downgrade() -> None:
    op.execute(DOWN)
