"""Classes and shares of organizations, projects and keys."""

from __future__ import annotations

from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE gateway.priorities (
    level text NOT NULL,
    subject_id uuid NOT NULL,
    tier text,
    service_class text,
    share integer,
    updated_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT priorities_subject_id_level_tier_key UNIQUE NULLS NOT DISTINCT (subject_id, level, tier),
    CONSTRAINT priorities_level_check CHECK (level IN ('organization', 'project', 'key')),
    CONSTRAINT priorities_tier_check CHECK (tier IN ('autocomplete', 'chat')),
    CONSTRAINT priorities_service_class_check CHECK (service_class IN ('offline', 'standard', 'interactive')),
    CONSTRAINT priorities_share_check CHECK (share BETWEEN 1 AND 10000),
    CONSTRAINT priorities_key_share_check CHECK (level <> 'key' OR share IS NULL),
    CONSTRAINT priorities_said_check CHECK (service_class IS NOT NULL OR share IS NOT NULL)
);

-- As of limits: a key's own rule concerns that key; a project's or an organization's, all of its keys.
CREATE TRIGGER priorities_notify AFTER INSERT OR UPDATE OR DELETE ON gateway.priorities
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_limits();
CREATE TRIGGER priorities_notify_truncate AFTER TRUNCATE ON gateway.priorities
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_all_keys();
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.priorities")
