"""Prices whose end is the beginning of the next one: they go on when that one is taken back before it begins.

Of prices that are there, such an end is told by the audit log: the making of another price gave it, and nobody set it
since.
"""

from __future__ import annotations

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

# All of it as migration 0005 has it, but for the columns that may change.
GUARD = """
CREATE OR REPLACE FUNCTION gateway.guard_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.valid_from <= now() THEN
            RAISE EXCEPTION 'price % has begun and cannot be deleted; end it', OLD.version
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF to_jsonb(OLD) - {end} IS DISTINCT FROM to_jsonb(NEW) - {end} THEN
        RAISE EXCEPTION 'price %: only its end may change; add another price', OLD.version
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.valid_until IS DISTINCT FROM NEW.valid_until AND (OLD.valid_until <= now() OR NEW.valid_until < now()) THEN
        RAISE EXCEPTION 'price %: what has passed was billed and stays as it was', OLD.version
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$
"""
TOLD = """
WITH told AS MATERIALIZED (
    SELECT DISTINCT ON (version) version, action
      FROM (SELECT id, action, CASE action WHEN 'price.create' THEN before ->> 'version' ELSE subject_id END AS version
              FROM gateway.audit_log WHERE action IN ('price.create', 'price.update')) AS changes
     ORDER BY version, id DESC
)
UPDATE gateway.prices AS ended SET ended_by_next = true
  FROM told
 WHERE ended.valid_until > now() AND told.version = ended.version::text AND told.action = 'price.create'
   AND EXISTS (SELECT FROM gateway.prices AS next
                WHERE next.model = ended.model AND next.valid_from = ended.valid_until)
"""


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.prices ADD COLUMN ended_by_next boolean DEFAULT false NOT NULL")
    op.execute(GUARD.format(end="ARRAY['valid_until', 'ended_by_next']"))
    op.execute(TOLD)


def downgrade() -> None:
    op.execute(GUARD.format(end="'valid_until'"))
    op.execute("ALTER TABLE gateway.prices DROP COLUMN ended_by_next")
