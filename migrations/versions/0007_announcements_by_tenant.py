"""A tenant's change is announced for that tenant's keys; organizations may share a name; deliveries by webhook."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# By tenant and not by a list of its keys: a key inserted at the same moment would be missed by a list, and stay in a
# gateway's memory as it was; and a payload has less than 8,000 bytes. Gateways of an earlier release take a payload
# they cannot read for `*`.
UP = """
CREATE FUNCTION gateway.notify_keys_of() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_keys', TG_ARGV[0] || ':' || NEW.id);
    RETURN NULL;
END
$$;

DROP TRIGGER projects_notify ON gateway.projects;
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW
    WHEN ((OLD.organization_id, OLD.models, OLD.tiers, OLD.disabled_at)
        IS DISTINCT FROM (NEW.organization_id, NEW.models, NEW.tiers, NEW.disabled_at))
    EXECUTE FUNCTION gateway.notify_keys_of('project');

DROP TRIGGER organizations_notify ON gateway.organizations;
CREATE TRIGGER organizations_notify AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (OLD.disabled_at IS DISTINCT FROM NEW.disabled_at)
    EXECUTE FUNCTION gateway.notify_keys_of('organization');

CREATE OR REPLACE FUNCTION gateway.notify_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed record;
BEGIN
    -- Both, for an update may give a rule to somebody else.
    FOR changed IN SELECT DISTINCT level, subject_id
                     FROM (VALUES (OLD.level, OLD.subject_id), (NEW.level, NEW.subject_id)) AS rule (level, subject_id)
                    WHERE level IS NOT NULL
    LOOP
        IF changed.level <> 'key' THEN
            PERFORM pg_notify('slipstream_keys', changed.level || ':' || changed.subject_id);
        ELSE
            PERFORM pg_notify('slipstream_keys', encode(each, 'hex'))
               FROM gateway.api_keys, unnest(ARRAY[hash, previous_hash]) AS each
              WHERE id = changed.subject_id AND each IS NOT NULL;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

ALTER TABLE gateway.organizations DROP CONSTRAINT organizations_name_key;
CREATE INDEX organizations_name_idx ON gateway.organizations (name);

CREATE INDEX webhook_deliveries_pending_idx ON gateway.webhook_deliveries (webhook_id, next_attempt_at)
    WHERE state = 'pending';
DROP INDEX gateway.webhook_deliveries_due_idx;
"""

# Organizations that have one name by now keep it up to the id: the constraint could not come back otherwise.
DOWN = """
CREATE INDEX webhook_deliveries_due_idx ON gateway.webhook_deliveries (next_attempt_at) WHERE state = 'pending';
DROP INDEX gateway.webhook_deliveries_pending_idx;

UPDATE gateway.organizations SET name = organizations.name || ' ' || organizations.id
  FROM gateway.organizations AS other
 WHERE other.name = organizations.name
   AND (other.created_at, other.id) < (organizations.created_at, organizations.id);
DROP INDEX gateway.organizations_name_idx;
ALTER TABLE gateway.organizations ADD CONSTRAINT organizations_name_key UNIQUE (name);

CREATE OR REPLACE FUNCTION gateway.notify_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed record := coalesce(NEW, OLD);
BEGIN
    IF changed.level <> 'key' THEN
        PERFORM pg_notify('slipstream_keys', '*');
    ELSE
        PERFORM pg_notify('slipstream_keys', encode(each, 'hex'))
           FROM gateway.api_keys, unnest(ARRAY[hash, previous_hash]) AS each
          WHERE id = changed.subject_id AND each IS NOT NULL;
    END IF;
    RETURN NULL;
END
$$;

DROP TRIGGER organizations_notify ON gateway.organizations;
CREATE TRIGGER organizations_notify AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (OLD.disabled_at IS DISTINCT FROM NEW.disabled_at)
    EXECUTE FUNCTION gateway.notify_all_keys();

DROP TRIGGER projects_notify ON gateway.projects;
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW
    WHEN ((OLD.organization_id, OLD.models, OLD.tiers, OLD.disabled_at)
        IS DISTINCT FROM (NEW.organization_id, NEW.models, NEW.tiers, NEW.disabled_at))
    EXECUTE FUNCTION gateway.notify_all_keys();
DROP FUNCTION gateway.notify_keys_of();
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
