"""Count requests and failures by hour, model and pool: few of all requests may be many of one model's."""

from __future__ import annotations

from alembic import op

revision = "0048"
down_revision = "0046"
branch_labels = None
depends_on = None

HOUR = "to_timestamp(('x' || substr(request_id, 5, 12))::bit(48)::bigint / 3600000 * 3600)"
# Ids with a time between 2020 and 2100.
DATED = f"request_id >= 'req_{1_577_836_800_000:012x}' AND request_id < 'req_{4_102_444_800_000:012x}'"
NO_FAULT = (
    "'client_gone', 'superseded', 'engine_refused', 'context_length_exceeded', 'invalid_value', 'unsupported_parameter'"
)
TABLE = """
CREATE TABLE gateway.request_target_hours (at timestamptz, organization_id uuid, tier text, model text, pool text,
    error_code text, requests bigint NOT NULL,
    PRIMARY KEY (at, organization_id, tier, model, pool, error_code))
"""
FILL = f"""
INSERT INTO gateway.request_target_hours (at, organization_id, tier, model, pool, error_code, requests)
SELECT {HOUR}, organization_id, coalesce(tier, ''), model, coalesce(pool, ''),
       CASE WHEN (status >= 500 OR status < 300 AND coalesce(error_code, 'client_gone') NOT IN ({NO_FAULT}))
                 AND NOT coalesce(over_share, false) THEN coalesce(error_code, '') ELSE '' END, count(*)
  FROM gateway.request_traces
 WHERE {DATED} AND model IS NOT NULL AND (tier IS NOT NULL OR status >= 500)
   AND service_class IS DISTINCT FROM 'offline'
 GROUP BY 1, 2, 3, 4, 5, 6
"""  # noqa: S608


def upgrade() -> None:
    op.execute(TABLE)
    op.execute(FILL)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.request_target_hours")
