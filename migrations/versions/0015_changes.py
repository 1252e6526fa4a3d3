"""The ledger of changes: what each was expected to do to latency, and what it did."""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE gateway.changes (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name text NOT NULL,
    made_at timestamptz NOT NULL,
    metric text NOT NULL,
    statistic text NOT NULL,
    tier text,
    model text,
    expected_ms double precision NOT NULL,
    window_s integer NOT NULL,
    before_ms double precision,
    before_requests integer,
    after_ms double precision,
    after_requests integer,
    measured_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT changes_metric_check CHECK (metric IN ('ttft', 'tpot', 'longest_gap')),
    CONSTRAINT changes_statistic_check CHECK (statistic IN ('p50', 'p95', 'p99')),
    CONSTRAINT changes_tier_check CHECK (tier IN ('autocomplete', 'chat')),
    CONSTRAINT changes_window_s_check CHECK (window_s > 0),
    CONSTRAINT changes_measured_at_check CHECK
        ((measured_at IS NULL) = (before_ms IS NULL) AND (measured_at IS NULL) = (after_ms IS NULL))
);
CREATE INDEX changes_made_at_id_idx ON gateway.changes (made_at, id);
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.changes")
