"""Of a request whose answer was made of another one's generation: that one's id."""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces ADD COLUMN served_from text")


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces DROP COLUMN served_from")
