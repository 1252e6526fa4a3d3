"""Totals of usage tell a model's LoRA adapters apart."""

from __future__ import annotations

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

SUMS = ("requests", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens",
        "amount_micro", "draft_tokens", "accepted_draft_tokens")  # fmt: skip
OWNERS = "organization_id, project_id, key_id, model, tier"
HOUR = "date_trunc('hour', requested_at, 'UTC')"
ADDED = ", ".join(f"sum({name})" for name in SUMS)
COLUMNS = ", ".join(SUMS)

UP = f"""
ALTER TABLE gateway.usage_hourly ADD COLUMN adapter text NOT NULL DEFAULT '',
    DROP CONSTRAINT usage_hourly_pkey,
    ADD CONSTRAINT usage_hourly_pkey PRIMARY KEY (hour, {OWNERS}, adapter);
ALTER TABLE gateway.usage_daily ADD COLUMN adapter text NOT NULL DEFAULT '',
    DROP CONSTRAINT usage_daily_pkey,
    ADD CONSTRAINT usage_daily_pkey PRIMARY KEY (day, {OWNERS}, adapter);

-- What was counted under the model alone so far, where it has adapters.
CREATE TEMPORARY TABLE adapted ON COMMIT DROP AS
    SELECT DISTINCT {HOUR} AS hour, {OWNERS} FROM gateway.usage_events WHERE adapter IS NOT NULL AND billed;
DELETE FROM gateway.usage_hourly USING adapted
 WHERE ROW(usage_hourly.hour, usage_hourly.organization_id, usage_hourly.project_id, usage_hourly.key_id,
           usage_hourly.model, usage_hourly.tier)
     = ROW(adapted.hour, adapted.organization_id, adapted.project_id, adapted.key_id, adapted.model, adapted.tier);
INSERT INTO gateway.usage_hourly (hour, {OWNERS}, adapter, {COLUMNS})
SELECT {HOUR}, {OWNERS}, coalesce(adapter, ''), count(*), {ADDED.removeprefix("sum(requests), ")}
  FROM gateway.usage_events
 WHERE billed AND ({HOUR}, {OWNERS}) IN (SELECT hour, {OWNERS} FROM adapted)
 GROUP BY 1, {OWNERS}, coalesce(adapter, '');
DELETE FROM gateway.usage_daily
 WHERE (day, {OWNERS}) IN (SELECT (hour AT TIME ZONE 'UTC')::date, {OWNERS} FROM adapted);
INSERT INTO gateway.usage_daily (day, {OWNERS}, adapter, {COLUMNS})
SELECT (hour AT TIME ZONE 'UTC')::date, {OWNERS}, adapter, {ADDED}
  FROM gateway.usage_hourly
 WHERE ((hour AT TIME ZONE 'UTC')::date, {OWNERS}) IN (
       SELECT (hour AT TIME ZONE 'UTC')::date, {OWNERS} FROM adapted)
 GROUP BY 1, {OWNERS}, adapter;
"""  # noqa: S608


def _together(table: str, time: str) -> str:
    return f"""
CREATE TEMPORARY TABLE whole ON COMMIT DROP AS
    SELECT {time}, {OWNERS}, {", ".join(f"sum({name})::bigint AS {name}" for name in SUMS)},
           max(computed_at) AS computed_at
      FROM gateway.{table} GROUP BY {time}, {OWNERS};
TRUNCATE gateway.{table};
ALTER TABLE gateway.{table} DROP CONSTRAINT {table}_pkey, DROP COLUMN adapter,
    ADD CONSTRAINT {table}_pkey PRIMARY KEY ({time}, {OWNERS});
INSERT INTO gateway.{table} ({time}, {OWNERS}, {COLUMNS}, computed_at) SELECT * FROM whole;
DROP TABLE whole;
"""  # noqa: S608


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(_together("usage_hourly", "hour"))
    op.execute(_together("usage_daily", "day"))
