"""Totals of usage by key of whole weeks that are over. The first roll-up fills them from those by day."""

from __future__ import annotations

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

SUMS = ("requests", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens",
        "amount_micro")  # fmt: skip
DRAFTS = ("draft_tokens", "accepted_draft_tokens")


def upgrade() -> None:
    counts = ", ".join(f"{name} bigint NOT NULL" for name in SUMS)
    drafts = ", ".join(f"{name} bigint NOT NULL DEFAULT 0" for name in DRAFTS)
    op.execute(f"""
CREATE TABLE gateway.usage_weekly (week date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL,
    key_id uuid NOT NULL, model text NOT NULL, tier text NOT NULL, {counts}, {drafts},
    computed_at timestamptz NOT NULL DEFAULT now(), adapter text NOT NULL DEFAULT '',
    CONSTRAINT usage_weekly_pkey PRIMARY KEY (week, organization_id, project_id, key_id, model, tier, adapter));
CREATE INDEX usage_weekly_organization_id_week_idx ON gateway.usage_weekly (organization_id, week);
CREATE TABLE gateway.usage_week_closings (until date NOT NULL PRIMARY KEY);
""")


def downgrade() -> None:
    op.execute("DROP TABLE gateway.usage_week_closings")
    op.execute("DROP TABLE gateway.usage_weekly")
