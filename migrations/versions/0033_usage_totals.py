"""Totals of usage without a row for each key, and without one for each project."""

from __future__ import annotations

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

SUMS = ("requests", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens",
        "amount_micro", "draft_tokens", "accepted_draft_tokens")  # fmt: skip
NAMES = ", ".join(SUMS)
ADDED = ", ".join(f"sum({name})" for name in SUMS)
ORGANIZATION, PROJECT = "organization_id", "organization_id, project_id"


def _table(name: str, time: str, owners: str, source: str) -> str:
    kind = "timestamptz" if time == "hour" else "date"
    ids = ", ".join(f"{owner} uuid NOT NULL" for owner in owners.split(", "))
    counts = ", ".join(f"{column} bigint NOT NULL" for column in SUMS[:-2])
    drafts = ", ".join(f"{column} bigint NOT NULL DEFAULT 0" for column in SUMS[-2:])
    key = f"{time}, {owners}, model, tier, adapter"
    return f"""
CREATE TABLE gateway.{name} ({time} {kind} NOT NULL, {ids}, model text NOT NULL, tier text NOT NULL, {counts}, {drafts},
    computed_at timestamptz NOT NULL DEFAULT now(), adapter text NOT NULL DEFAULT '',
    CONSTRAINT {name}_pkey PRIMARY KEY ({key}));
INSERT INTO gateway.{name} ({key}, {NAMES}) SELECT {key}, {ADDED} FROM gateway.{source} GROUP BY {key};
CREATE INDEX {name}_organization_id_{time}_idx ON gateway.{name} (organization_id, {time});
"""  # noqa: S608


def upgrade() -> None:
    op.execute("CREATE INDEX usage_daily_key_id_day_idx ON gateway.usage_daily (key_id, day)")
    op.execute(_table("project_usage_daily", "day", PROJECT, "usage_daily"))
    op.execute("CREATE INDEX project_usage_daily_project_id_day_idx ON gateway.project_usage_daily (project_id, day)")
    op.execute(_table("organization_usage_daily", "day", ORGANIZATION, "project_usage_daily"))
    op.execute(_table("organization_usage_hourly", "hour", ORGANIZATION, "usage_hourly"))


def downgrade() -> None:
    for table in ("organization_usage_hourly", "organization_usage_daily", "project_usage_daily"):
        op.execute(f"DROP TABLE gateway.{table}")
    op.execute("DROP INDEX gateway.usage_daily_key_id_day_idx")
