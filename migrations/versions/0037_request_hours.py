"""Requests by hour and what failed or was refused of them, and indices for samples of many: for long diagnoses."""

from __future__ import annotations

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

ALL = "00000000-0000-0000-0000-000000000000"
HOUR = "to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 3600000 * 3600)"
# Ids that carry a time, of 2020 to 2100.
DATED = f"request_id >= 'req_{1_577_836_800_000:012x}' AND request_id < 'req_{4_102_444_800_000:012x}'"
LIMITED = "error_code IN ('rate_limit_exceeded', 'insufficient_quota', 'request_exceeds_limit', 'too_many_connections')"
TABLES = """
CREATE TABLE gateway.request_hours (at timestamptz, organization_id uuid, tier text, requests bigint NOT NULL,
    retried bigint NOT NULL, answered bigint NOT NULL, squares bigint NOT NULL,
    PRIMARY KEY (at, organization_id, tier));
CREATE TABLE gateway.request_error_hours (at timestamptz, organization_id uuid, tier text, error_code text, rule text,
    requests bigint NOT NULL, PRIMARY KEY (at, organization_id, tier, error_code, rule));
CREATE TABLE gateway.refused_key_hours (at timestamptz, organization_id uuid, tier text, key_id uuid,
    requests bigint NOT NULL, PRIMARY KEY (at, organization_id, tier, key_id));
"""
FILL = f"""
WITH cut AS (
    SELECT grouping(organization_id) AS of_all, grouping(tier) AS of_every_tier, organization_id, tier, at, second,
           count(*) AS requests, count(*) FILTER (WHERE is_retried) AS retried,
           count(*) FILTER (WHERE status = 200) AS answered
      FROM (SELECT {HOUR} AS at, organization_id, coalesce(tier, '') AS tier, status,
                   coalesce(attempts > 1 AND status < 500, false) AS is_retried,
                   ('x' || substr(request_id, 5, 12))::bit(48)::bigint / 1000 AS second
              FROM gateway.request_traces WHERE {DATED}) AS asked
     GROUP BY GROUPING SETS ((organization_id, tier, at, second), (organization_id, at, second), (tier, at, second),
                             (at, second))
)
INSERT INTO gateway.request_hours (at, organization_id, tier, requests, retried, answered, squares)
SELECT at, CASE of_all WHEN 1 THEN '{ALL}' ELSE organization_id END, CASE of_every_tier WHEN 1 THEN '*' ELSE tier END,
       sum(requests), sum(retried), sum(answered), sum(requests * requests)
  FROM cut GROUP BY 1, 2, 3;
INSERT INTO gateway.request_error_hours (at, organization_id, tier, error_code, rule, requests)
SELECT {HOUR}, organization_id, coalesce(tier, ''), error_code,
       CASE WHEN {LIMITED} THEN coalesce(rule->>'counter' || ' of the ' || (rule->>'level'), error_code)
            WHEN over_share THEN 'fair share of the pool' ELSE '' END, count(*)
  FROM gateway.request_traces
 WHERE {DATED} AND error_code IS NOT NULL AND (status >= 500 OR {LIMITED})
 GROUP BY 1, 2, 3, 4, 5;
INSERT INTO gateway.refused_key_hours (at, organization_id, tier, key_id, requests)
SELECT {HOUR}, organization_id, coalesce(tier, ''), coalesce(key_id, '{ALL}'), count(*)
  FROM gateway.request_traces WHERE {DATED} AND ({LIMITED} OR over_share)
 GROUP BY 1, 2, 3, 4;
"""  # noqa: S608
# Samples are drawn by the random end of ids, so many of 65,536. How few an end leaves PostgreSQL knows by the
# statistics alone.
SHARES = ("1000", "0400", "0100", "0040")
SAMPLED = ("request_traces", "prefix_samples")


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(FILL)
    for table in SAMPLED:
        for share in SHARES:
            op.execute(
                f"CREATE INDEX {table}_sample_{share}_idx ON gateway.{table} (request_id, organization_id)"
                f" WHERE right(request_id, 4) < '{share}'"
            )
        op.execute(f"CREATE STATISTICS gateway.{table}_sample_stat ON (right(request_id, 4)) FROM gateway.{table}")
        op.execute(f"ANALYZE gateway.{table}")


def downgrade() -> None:
    for table in SAMPLED:
        op.execute(f"DROP STATISTICS gateway.{table}_sample_stat")
        for share in SHARES:
            op.execute(f"DROP INDEX gateway.{table}_sample_{share}_idx")
    op.execute("DROP TABLE gateway.request_hours, gateway.request_error_hours, gateway.refused_key_hours")
