"""Record when a limit was created. A budget that was deleted and created again has not counted the time between."""

from __future__ import annotations

from alembic import op

revision = "0054"
down_revision = "0053"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.limits ADD COLUMN created_at timestamptz DEFAULT now() NOT NULL")


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.limits DROP COLUMN created_at")
