"""What the deployment served is told apart by length and side of a rollout too; totals of organizations by hour."""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

COUNTS = ("requests", "counted", "failed", "shed", "limited", "abandoned", "superseded", "good", "ttft_kept",
          "tpot_kept", "gap_kept", "prompt_tokens", "cached_tokens", "completion_tokens", "good_tokens",
          "over_share")  # fmt: skip
NAMES = ", ".join(COUNTS)
SUMS = ", ".join(f"sum({name})" for name in COUNTS)
COLUMNS = ", ".join(f"{name} bigint NOT NULL" for name in COUNTS)
BEFORE, KEY = "tier, model, pool", "tier, length, model, pool, canary"
TEXTS = "tier text, length text, model text, pool text, canary boolean"
HOUR = "date_trunc('hour', {at}, 'UTC')"


def _serving(key: str, columns: str) -> str:
    """Both tables anew, from the minutes that are kept as long."""
    return f"""
DROP TABLE gateway.serving_hours;
DROP TABLE gateway.serving_minutes;
CREATE TABLE gateway.serving_minutes (at timestamptz, {columns}, {COLUMNS}, PRIMARY KEY (at, {key}));
CREATE TABLE gateway.serving_hours (at timestamptz, {columns}, {COLUMNS}, PRIMARY KEY (at, {key}));
INSERT INTO gateway.serving_minutes (at, {key}, {NAMES})
SELECT minute, {key}, {SUMS} FROM gateway.slo_minutes GROUP BY minute, {key};
INSERT INTO gateway.serving_hours (at, {key}, {NAMES})
SELECT {HOUR.format(at="at")}, {key}, {SUMS} FROM gateway.serving_minutes GROUP BY 1, {key};
"""  # noqa: S608


def upgrade() -> None:
    op.execute(_serving(KEY, TEXTS))
    of = f"organization_id, {KEY}"
    op.execute(
        f"CREATE TABLE gateway.slo_hours (at timestamptz, organization_id uuid, {TEXTS}, {COLUMNS},"
        f" PRIMARY KEY (at, {of}))"
    )
    op.execute(
        f"INSERT INTO gateway.slo_hours (at, {of}, {NAMES})"  # noqa: S608
        f" SELECT {HOUR.format(at='minute')}, {of}, {SUMS} FROM gateway.slo_minutes GROUP BY 1, {of}"
    )
    op.execute("CREATE INDEX slo_hours_organization_id_at_idx ON gateway.slo_hours (organization_id, at)")


def downgrade() -> None:
    op.execute("DROP TABLE gateway.slo_hours")
    op.execute(_serving(BEFORE, "tier text, model text, pool text"))
