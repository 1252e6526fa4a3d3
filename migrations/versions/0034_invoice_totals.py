"""What invoices add up, kept by day and by month. The first roll-up fills the tables from the events."""

from __future__ import annotations

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

SUMS = ("requests", "prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens",
        "amount_micro", "uncached_tokens", "charged_cached_tokens", "charged_cache_write_tokens")  # fmt: skip
COUNTS = ", ".join(f"{name} bigint NOT NULL" for name in SUMS)
KEY = "organization_id, project_id, key_id, model, tier, price_version"


def _table(name: str, time: str) -> str:
    return f"""
CREATE TABLE gateway.{name} ({time} date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL,
    key_id uuid NOT NULL, model text NOT NULL, tier text NOT NULL, price_version bigint NOT NULL, {COUNTS},
    CONSTRAINT {name}_pkey PRIMARY KEY ({time}, {KEY}));
"""


def upgrade() -> None:
    op.execute(_table("invoice_days", "day"))
    op.execute(_table("invoice_months", "month"))
    op.execute(
        "CREATE INDEX invoice_months_organization_id_month_idx ON gateway.invoice_months (organization_id, month)"
    )
    op.execute("CREATE TABLE gateway.invoice_closings (until timestamptz NOT NULL PRIMARY KEY)")


def downgrade() -> None:
    for table in ("invoice_days", "invoice_months", "invoice_closings"):
        op.execute(f"DROP TABLE gateway.{table}")
