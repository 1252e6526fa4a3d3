"""What became of completions, added up by hour and day."""

from __future__ import annotations

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

COUNTS = ("completions", "empty", "abandoned", "superseded", "shown", "accepted", "dismissed", "characters_offered",
          "characters_kept")  # fmt: skip
NAMES = ", ".join(COUNTS)
SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
TOTALS = (
    ", ".join(f"{name} bigint NOT NULL" for name in COUNTS) + ", buckets smallint[] NOT NULL, counts bigint[] NOT NULL"
)
KEY = "organization_id, project_id, hour, language, client, model"
# Table, its time, what else it tells apart, whose sums it has, and their time as its own.
CUTS = (
    ("detailed_completion_days", "day", "project_id, language, client, model", "completion_hours",
     "(hour AT TIME ZONE 'UTC')::date"),
    ("completion_days", "day", "language, client, model", "detailed_completion_days", "day"),
    ("project_completion_days", "day", "project_id", "detailed_completion_days", "day"),
    ("project_completion_weeks", "week", "project_id", "project_completion_days",
     "day - (extract(isodow FROM day)::integer - 1)"),
)  # fmt: skip
# Ids that carry a time, of 2020 to 2100.
DATED = f"request_id >= 'req_{1_577_836_800_000:012x}' AND request_id < 'req_{4_102_444_800_000:012x}'"

TABLES = f"""
CREATE TABLE gateway.completion_hours (
    organization_id uuid, project_id uuid, hour timestamptz, language text, client text, model text, {TOTALS},
    PRIMARY KEY ({KEY})
);
CREATE INDEX completion_hours_hour_organization_id_idx ON gateway.completion_hours (hour, organization_id);
CREATE TABLE gateway.detailed_completion_days (
    organization_id uuid, project_id uuid, day date, language text, client text, model text, {TOTALS},
    PRIMARY KEY (organization_id, project_id, day, language, client, model)
);
CREATE INDEX detailed_completion_days_day_organization_id_idx
    ON gateway.detailed_completion_days (day, organization_id);
CREATE TABLE gateway.completion_days (
    organization_id uuid, day date, language text, client text, model text, {TOTALS},
    PRIMARY KEY (organization_id, day, language, client, model)
);
CREATE INDEX completion_days_day_organization_id_idx ON gateway.completion_days (day, organization_id);
CREATE TABLE gateway.project_completion_days (
    organization_id uuid, project_id uuid, day date, {TOTALS},
    PRIMARY KEY (organization_id, project_id, day)
);
CREATE INDEX project_completion_days_day_organization_id_idx ON gateway.project_completion_days (day, organization_id);
CREATE TABLE gateway.project_completion_weeks (
    organization_id uuid, project_id uuid, week date, {TOTALS},
    PRIMARY KEY (organization_id, project_id, week)
);
CREATE INDEX project_completion_weeks_week_organization_id_idx
    ON gateway.project_completion_weeks (week, organization_id);
CREATE TABLE gateway.completion_roll_up_runs (
    started_at timestamptz PRIMARY KEY,
    seconds double precision NOT NULL,
    hours integer NOT NULL
);
"""
# Of what traces and reports there are, as control/completions/rollup.py does it for an hour.
KNOWN_HOURS = f"""
WITH made AS MATERIALIZED (
    SELECT request_id, organization_id, coalesce(project_id, '00000000-0000-0000-0000-000000000000') AS project_id,
           to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 3600000 * 3600) AS hour,
           coalesce(language, 'unknown') AS language, coalesce(client, 'unknown') AS client,
           coalesce(model, '') AS model, status, characters, total_ms,
           coalesce(error_code, '') = 'superseded' AS is_superseded
      FROM gateway.request_traces WHERE {DATED} AND tier = 'autocomplete' AND status IN (200, 499)
), showing AS (
    SELECT organization_id, request_id, project_id, choice_index, view_id,
           bool_or(is_taken) AS accepted, bool_or(type = 'dismiss') AS dismissed,
           bool_or(type = 'select' AND characters IS NULL) AS whole,
           coalesce(max(characters) FILTER (WHERE is_taken), 0) AS told
      FROM gateway.completion_events
     CROSS JOIN LATERAL (SELECT type IN ('select', 'select_part') AS is_taken) AS what
     GROUP BY organization_id, request_id, project_id, choice_index, view_id
), became AS (
    SELECT organization_id, request_id, project_id, count(*) AS shown, count(*) FILTER (WHERE accepted) AS accepted,
           count(*) FILTER (WHERE dismissed AND NOT accepted) AS dismissed,
           sum(CASE WHEN choice_index = 0 AND whole AND characters IS NOT NULL THEN characters
                    WHEN choice_index = 0 THEN least(told, characters) ELSE told END)
               FILTER (WHERE accepted) AS characters_kept
      FROM showing JOIN made USING (organization_id, request_id, project_id)
     GROUP BY organization_id, request_id, project_id
), bucketed AS (
    SELECT {KEY}, CASE WHEN is_offered AND total_ms < 'Infinity'
                       THEN ceil(ln(greatest(total_ms, 0.01)) / ln(1.05::float8))::smallint END AS bucket,
           count(*) FILTER (WHERE is_offered) AS completions,
           count(*) FILTER (WHERE is_served AND characters = 0) AS empty,
           count(*) FILTER (WHERE status = 499) AS abandoned,
           count(*) FILTER (WHERE is_superseded) AS superseded,
           coalesce(sum(shown), 0) AS shown, coalesce(sum(accepted), 0) AS accepted,
           coalesce(sum(dismissed), 0) AS dismissed,
           coalesce(sum(characters) FILTER (WHERE is_served), 0) AS characters_offered,
           coalesce(sum(characters_kept), 0) AS characters_kept
      FROM made LEFT JOIN became USING (organization_id, request_id, project_id)
     CROSS JOIN LATERAL (SELECT status = 200 AND NOT is_superseded AS is_served) AS answered
     CROSS JOIN LATERAL (SELECT is_served AND coalesce(characters, 1) > 0 AS is_offered) AS had_text
     GROUP BY {KEY}, bucket
)
INSERT INTO gateway.completion_hours ({KEY}, {NAMES}, buckets, counts)
SELECT {KEY}, {SUMS}, coalesce(array_agg(bucket ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{{}}'),
       coalesce(array_agg(completions ORDER BY bucket) FILTER (WHERE bucket IS NOT NULL), '{{}}')
  FROM bucketed GROUP BY {KEY};
"""  # noqa: S608


def _known(table: str, time: str, key: str, parts: str, at: str) -> str:
    group = f"organization_id, {time}, {key}"
    return f"""
WITH parts AS MATERIALIZED (
    SELECT organization_id, {at} AS {time}, {key}, {NAMES}, buckets, counts FROM gateway.{parts}
), summed AS (
    SELECT {group}, {SUMS} FROM parts GROUP BY {group}
), bucketed AS (
    SELECT {group}, bucket, sum(each)::bigint AS of_bucket
      FROM (SELECT {group}, unnest(buckets) AS bucket, unnest(counts) AS each FROM parts) AS histogram
     GROUP BY {group}, bucket
), histograms AS (
    SELECT {group}, array_agg(bucket ORDER BY bucket) AS buckets, array_agg(of_bucket ORDER BY bucket) AS counts
      FROM bucketed GROUP BY {group}
)
INSERT INTO gateway.{table} ({group}, {NAMES}, buckets, counts)
SELECT {group}, {NAMES}, coalesce(buckets, '{{}}'), coalesce(counts, '{{}}')
  FROM summed LEFT JOIN histograms USING ({group});
"""  # noqa: S608


# The worker's first run then looks at what comes from now on; where there was nothing, at everything.
RAN = """
INSERT INTO gateway.completion_roll_up_runs
SELECT now(), 0, count(*) FROM (SELECT DISTINCT hour, organization_id FROM gateway.completion_hours) AS known
HAVING count(*) > 0;
"""


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(KNOWN_HOURS)
    op.execute("ANALYZE gateway.completion_hours")
    for table, *cut in CUTS:
        op.execute(_known(table, *cut))
        op.execute(f"ANALYZE gateway.{table}")
    op.execute(RAN)


def downgrade() -> None:
    for table in ("completion_roll_up_runs", *(table for table, *_ in reversed(CUTS)), "completion_hours"):
        op.execute(f"DROP TABLE gateway.{table}")
