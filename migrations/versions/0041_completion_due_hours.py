"""Hours of completions that are to be added up again, from one run of the roll-up to the next."""

from __future__ import annotations

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        CREATE TABLE gateway.completion_due_hours (
            hour timestamptz,
            organization_id uuid,
            since timestamptz NOT NULL,
            PRIMARY KEY (hour, organization_id)
        )
    """)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.completion_due_hours")
