"""What the whole deployment served by minute and hour, with histograms of its latencies."""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

COUNTS = ("requests", "counted", "failed", "shed", "limited", "abandoned", "superseded", "good", "ttft_kept",
          "tpot_kept", "gap_kept", "prompt_tokens", "cached_tokens", "completion_tokens", "good_tokens",
          "over_share")  # fmt: skip
NAMES = ", ".join(COUNTS)
SUMS = ", ".join(f"sum({name})" for name in COUNTS)
KEY = "at timestamptz, tier text, model text, pool text"
COLUMNS = ", ".join(f"{name} bigint NOT NULL" for name in COUNTS)
# Ids that carry a time, of 2020 to 2100.
DATED = f"request_id >= 'req_{1_577_836_800_000:012x}' AND request_id < 'req_{4_102_444_800_000:012x}'"
TABLES = ("serving_minutes", "serving_hours", "latency_minutes", "latency_hours")


def _tables(every: str) -> str:
    return f"""
CREATE TABLE gateway.serving_{every} ({KEY}, {COLUMNS}, PRIMARY KEY (at, tier, model, pool));
CREATE TABLE gateway.latency_{every} ({KEY}, measure text, buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (at, tier, model, pool, measure));
"""


# What was added up so far, and of what traces there are.
KNOWN = f"""
INSERT INTO gateway.serving_minutes (at, tier, model, pool, {NAMES})
SELECT minute, tier, model, pool, {SUMS} FROM gateway.slo_minutes GROUP BY 1, 2, 3, 4;
INSERT INTO gateway.latency_minutes (at, tier, model, pool, measure, buckets, counts)
SELECT at, tier, model, pool, measure, array_agg(bucket ORDER BY bucket), array_agg(requests ORDER BY bucket)
  FROM (SELECT to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 60000 * 60) AS at, tier,
               coalesce(model, '') AS model, coalesce(pool, '') AS pool, measure,
               ceil(ln(greatest(value_ms, 0.01)) / ln(1.05::float8))::smallint AS bucket, count(*) AS requests
          FROM gateway.request_traces
         CROSS JOIN LATERAL (VALUES ('ttft', ttft_ms), ('tpot', tpot_ms), ('gap', itl_max_ms)) AS m (measure, value_ms)
         WHERE {DATED} AND tier IS NOT NULL AND value_ms IS NOT NULL
         GROUP BY 1, 2, 3, 4, 5, 6) AS bucketed
 GROUP BY 1, 2, 3, 4, 5;
INSERT INTO gateway.serving_hours (at, tier, model, pool, {NAMES})
SELECT date_trunc('hour', at, 'UTC'), tier, model, pool, {SUMS} FROM gateway.serving_minutes GROUP BY 1, 2, 3, 4;
INSERT INTO gateway.latency_hours (at, tier, model, pool, measure, buckets, counts)
SELECT at, tier, model, pool, measure, array_agg(bucket ORDER BY bucket), array_agg(requests ORDER BY bucket)
  FROM (SELECT date_trunc('hour', at, 'UTC') AS at, tier, model, pool, measure, bucket, sum(each)::bigint AS requests
          FROM gateway.latency_minutes CROSS JOIN unnest(buckets, counts) AS histogram (bucket, each)
         GROUP BY 1, 2, 3, 4, 5, 6) AS added
 GROUP BY 1, 2, 3, 4, 5;
"""  # noqa: S608


def upgrade() -> None:
    op.execute(_tables("minutes") + _tables("hours"))
    op.execute(KNOWN)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE gateway.{table}")
