"""Prompts and completions of organizations that want them kept; deleted at once when they no longer do."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

# Deleted by the database itself, whoever turns the setting off: the statement that stores texts holds the
# organization's row, so that what came before it is found here, and what comes later is not stored.
UP = """
ALTER TABLE gateway.organizations
    ADD COLUMN store_prompts boolean DEFAULT false NOT NULL,
    ADD COLUMN store_prompts_since timestamptz DEFAULT '-infinity' NOT NULL;

-- What was asked before is not stored, though it may still wait in a gateway.
CREATE FUNCTION gateway.note_store_prompts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.store_prompts_since := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE TRIGGER organizations_store_prompts BEFORE UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (NEW.store_prompts AND NOT OLD.store_prompts)
    EXECUTE FUNCTION gateway.note_store_prompts();

CREATE TABLE gateway.completion_texts (
    request_id text COLLATE "C",
    project_id uuid NOT NULL,
    organization_id uuid NOT NULL,
    prefix text NOT NULL,
    suffix text NOT NULL,
    completion text,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request_id)
);
CREATE INDEX completion_texts_recorded_at_idx ON gateway.completion_texts USING brin (recorded_at);
CREATE INDEX completion_texts_organization_id_request_id_idx
    ON gateway.completion_texts (organization_id, request_id);

CREATE FUNCTION gateway.forget_completion_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = NEW.id;
    RETURN NULL;
END
$$;
CREATE TRIGGER organizations_forget_texts AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (OLD.store_prompts AND NOT NEW.store_prompts)
    EXECUTE FUNCTION gateway.forget_completion_texts();

DROP TRIGGER organizations_notify ON gateway.organizations;
CREATE TRIGGER organizations_notify AFTER UPDATE ON gateway.organizations
    FOR EACH ROW
    WHEN ((OLD.disabled_at, OLD.store_prompts) IS DISTINCT FROM (NEW.disabled_at, NEW.store_prompts))
    EXECUTE FUNCTION gateway.notify_keys_of('organization');
"""

DOWN = """
DROP TRIGGER organizations_notify ON gateway.organizations;
CREATE TRIGGER organizations_notify AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (OLD.disabled_at IS DISTINCT FROM NEW.disabled_at)
    EXECUTE FUNCTION gateway.notify_keys_of('organization');
DROP TRIGGER organizations_forget_texts ON gateway.organizations;
DROP FUNCTION gateway.forget_completion_texts();
DROP TABLE gateway.completion_texts;
DROP TRIGGER organizations_store_prompts ON gateway.organizations;
DROP FUNCTION gateway.note_store_prompts();
ALTER TABLE gateway.organizations DROP COLUMN store_prompts, DROP COLUMN store_prompts_since;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
