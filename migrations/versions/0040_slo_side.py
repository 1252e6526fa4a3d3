"""Totals of objectives are told apart by side of a rollout, as requests and metrics name them.

A canary was told from the rest, so that its control arm was added up with the baseline: of before, it still is.
"""

from __future__ import annotations

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

COUNTS = ("requests", "counted", "failed", "shed", "limited", "abandoned", "superseded", "good", "ttft_kept",
          "tpot_kept", "gap_kept", "prompt_tokens", "cached_tokens", "completion_tokens", "good_tokens",
          "over_share")  # fmt: skip
NAMES = ", ".join(COUNTS)
SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in COUNTS)
OF = "tier, length, model, pool, side"
KEYS = {
    "slo_minutes": f"minute, organization_id, project_id, {OF}",
    "slo_hours": f"at, organization_id, {OF}",
    "serving_minutes": f"at, {OF}",
    "serving_hours": f"at, {OF}",
}


# From PostgreSQL 18 on, that a column is not null is a constraint with a name.
RENAMED = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_constraint WHERE conname = '{table}_{old}_not_null'
                  AND conrelid = 'gateway.{table}'::regclass) THEN
        ALTER TABLE gateway.{table} RENAME CONSTRAINT {table}_{old}_not_null TO {table}_{new}_not_null;
    END IF;
END $$
"""


def upgrade() -> None:
    for table in KEYS:
        op.execute(
            f"ALTER TABLE gateway.{table} ALTER canary TYPE text USING CASE WHEN canary THEN 'candidate'"
            " ELSE 'baseline' END"
        )
        op.execute(f"ALTER TABLE gateway.{table} RENAME canary TO side")
        op.execute(RENAMED.format(table=table, old="canary", new="side"))


def downgrade() -> None:
    for table, key in KEYS.items():
        version = ", max(version) AS version" if table == "slo_minutes" else ""
        named = ", version" if version else ""
        together = key.replace("side", "CASE side WHEN 'control' THEN 'baseline' ELSE side END AS side")
        by = ", ".join(str(number) for number in range(1, key.count(",") + 2))
        op.execute(
            f"CREATE TEMPORARY TABLE together ON COMMIT DROP AS"  # noqa: S608
            f" SELECT {together}{version}, {SUMS} FROM gateway.{table} GROUP BY {by}"
        )
        op.execute(f"TRUNCATE gateway.{table}")
        op.execute(f"INSERT INTO gateway.{table} ({key}{named}, {NAMES}) SELECT * FROM together")  # noqa: S608
        op.execute("DROP TABLE together")
        op.execute(f"ALTER TABLE gateway.{table} ALTER side TYPE boolean USING side = 'candidate'")
        op.execute(f"ALTER TABLE gateway.{table} RENAME side TO canary")
        op.execute(RENAMED.format(table=table, old="side", new="canary"))
