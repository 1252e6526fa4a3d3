"""Totals know how many tokens were drafted for whom, and how many of them were right; those there are, too."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE gateway.usage_hourly
    ADD COLUMN draft_tokens bigint DEFAULT 0 NOT NULL,
    ADD COLUMN accepted_draft_tokens bigint DEFAULT 0 NOT NULL;
ALTER TABLE gateway.usage_daily
    ADD COLUMN draft_tokens bigint DEFAULT 0 NOT NULL,
    ADD COLUMN accepted_draft_tokens bigint DEFAULT 0 NOT NULL;
"""
FILLED = """
UPDATE gateway.{table} AS totals
   SET draft_tokens = events.draft_tokens, accepted_draft_tokens = events.accepted_draft_tokens
  FROM (
        SELECT {time} AS time, organization_id, project_id, key_id, model, tier,
               sum(draft_tokens) AS draft_tokens, sum(accepted_draft_tokens) AS accepted_draft_tokens
          FROM gateway.usage_events
         WHERE billed AND draft_tokens > 0
           AND (requested_at AT TIME ZONE 'UTC')::date NOT IN (SELECT day FROM gateway.usage_retired_days)
         GROUP BY 1, 2, 3, 4, 5, 6
       ) AS events
 WHERE totals.{column} = events.time
   AND (totals.organization_id, totals.project_id, totals.key_id, totals.model, totals.tier)
     = (events.organization_id, events.project_id, events.key_id, events.model, events.tier)
"""
DOWN = """
ALTER TABLE gateway.usage_hourly DROP COLUMN draft_tokens, DROP COLUMN accepted_draft_tokens;
ALTER TABLE gateway.usage_daily DROP COLUMN draft_tokens, DROP COLUMN accepted_draft_tokens;
"""


def upgrade() -> None:
    op.execute(COLUMNS)
    hour, day = "date_trunc('hour', requested_at, 'UTC')", "(requested_at AT TIME ZONE 'UTC')::date"
    op.execute(FILLED.format(table="usage_hourly", time=hour, column="hour"))
    op.execute(FILLED.format(table="usage_daily", time=day, column="day"))


def downgrade() -> None:
    op.execute(DOWN)
