"""LoRA adapters of tenants, announced to gateways like all else that their keys may use; and in the ledger."""

from __future__ import annotations

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE gateway.adapters (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    organization_id uuid NOT NULL REFERENCES gateway.organizations,
    project_id uuid REFERENCES gateway.projects,
    model text NOT NULL,
    name text NOT NULL,
    path text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE NULLS NOT DISTINCT (organization_id, project_id, model, name)
);
CREATE INDEX adapters_organization_id_created_at_id_idx ON gateway.adapters (organization_id, created_at, id);

CREATE FUNCTION gateway.notify_adapters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Both, for an update may give it to somebody else.
    PERFORM pg_notify('slipstream_keys', 'organization:' || organization_id)
       FROM (VALUES (OLD.organization_id), (NEW.organization_id)) AS owner (organization_id)
      WHERE organization_id IS NOT NULL;
    RETURN NULL;
END
$$;
CREATE TRIGGER adapters_notify AFTER INSERT OR UPDATE OR DELETE ON gateway.adapters
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_adapters();

ALTER TABLE gateway.usage_events ADD COLUMN adapter text;
"""
DOWN = """
ALTER TABLE gateway.usage_events DROP COLUMN adapter;
DROP TABLE gateway.adapters;
DROP FUNCTION gateway.notify_adapters();
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
