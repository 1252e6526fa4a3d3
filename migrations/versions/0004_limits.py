"""Limits at every level, taken over from the keys' own columns."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE gateway.limits (
    level text NOT NULL,
    subject_id uuid NOT NULL,
    tier text,
    requests_per_minute bigint,
    input_tokens_per_minute bigint,
    output_tokens_per_minute bigint,
    tokens_per_minute bigint,
    max_concurrency bigint,
    tokens_per_day bigint,
    money_micro_per_month bigint,
    updated_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT limits_subject_id_level_tier_key UNIQUE NULLS NOT DISTINCT (subject_id, level, tier),
    CONSTRAINT limits_level_check CHECK (level IN ('organization', 'project', 'key')),
    CONSTRAINT limits_tier_check CHECK (tier IN ('autocomplete', 'chat')),
    CONSTRAINT limits_requests_per_minute_check CHECK (requests_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_input_tokens_per_minute_check CHECK (input_tokens_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_output_tokens_per_minute_check CHECK (output_tokens_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_tokens_per_minute_check CHECK (tokens_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_max_concurrency_check CHECK (max_concurrency BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_tokens_per_day_check CHECK (tokens_per_day BETWEEN 1 AND 1000000000000),
    CONSTRAINT limits_money_micro_per_month_check CHECK (money_micro_per_month BETWEEN 0 AND 90000000000000)
);

CREATE TABLE gateway.limit_gateways (
    instance text NOT NULL,
    epoch text NOT NULL,
    joined_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT limit_gateways_pkey PRIMARY KEY (instance)
);

-- tier: '' for all tiers together.
CREATE TABLE gateway.budget_crossings (
    level text NOT NULL,
    subject_id uuid NOT NULL,
    tier text NOT NULL,
    month text NOT NULL,
    percent bigint NOT NULL,
    organization_id uuid NOT NULL,
    limit_micro bigint NOT NULL,
    spent_micro bigint NOT NULL,
    crossed_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT budget_crossings_pkey PRIMARY KEY (level, subject_id, tier, month, percent)
);
CREATE INDEX budget_crossings_organization_id_crossed_at_idx
    ON gateway.budget_crossings (organization_id, crossed_at);

-- A key's own limits concern that key; a project's or an organization's, all of its keys.
CREATE FUNCTION gateway.notify_limits() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER limits_notify AFTER INSERT OR UPDATE OR DELETE ON gateway.limits
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_limits();
CREATE TRIGGER limits_notify_truncate AFTER TRUNCATE ON gateway.limits
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_all_keys();

INSERT INTO gateway.limits (level, subject_id, requests_per_minute, tokens_per_minute, max_concurrency)
SELECT 'key', id, requests_per_minute, tokens_per_minute, max_concurrency
  FROM gateway.api_keys
 WHERE requests_per_minute IS NOT NULL OR tokens_per_minute IS NOT NULL OR max_concurrency IS NOT NULL;

ALTER TABLE gateway.api_keys
    DROP COLUMN requests_per_minute, DROP COLUMN tokens_per_minute, DROP COLUMN max_concurrency;
"""

DOWN = """
ALTER TABLE gateway.api_keys
    ADD COLUMN requests_per_minute integer,
    ADD COLUMN tokens_per_minute integer,
    ADD COLUMN max_concurrency integer,
    ADD CONSTRAINT api_keys_requests_per_minute_check CHECK (requests_per_minute BETWEEN 1 AND 1000000000),
    ADD CONSTRAINT api_keys_tokens_per_minute_check CHECK (tokens_per_minute BETWEEN 1 AND 1000000000),
    ADD CONSTRAINT api_keys_max_concurrency_check CHECK (max_concurrency BETWEEN 1 AND 1000000000);

UPDATE gateway.api_keys
   SET requests_per_minute = limits.requests_per_minute, tokens_per_minute = limits.tokens_per_minute,
       max_concurrency = limits.max_concurrency
  FROM gateway.limits
 WHERE level = 'key' AND subject_id = id AND tier IS NULL;

DROP TABLE gateway.budget_crossings, gateway.limit_gateways, gateway.limits;
DROP FUNCTION gateway.notify_limits();
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
