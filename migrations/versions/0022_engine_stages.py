"""What engines' own pages tell of queue, prefill and retractions, beside the tokens they count."""

from __future__ import annotations

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE gateway.engine_counts
    ADD COLUMN queue_s double precision,
    ADD COLUMN prefill_s double precision,
    ADD COLUMN requests bigint,
    ADD COLUMN retractions bigint,
    ADD CONSTRAINT engine_counts_stages_check
        CHECK (num_nulls(queue_s, prefill_s, requests, retractions) IN (0, 4));
"""
DOWN = """
ALTER TABLE gateway.engine_counts
    DROP COLUMN queue_s, DROP COLUMN prefill_s, DROP COLUMN requests, DROP COLUMN retractions;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
