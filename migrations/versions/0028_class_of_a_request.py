"""The class a request was served in, for whoever looks it up, and so that nothing offline is judged by an objective."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces ADD COLUMN service_class text")


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces DROP COLUMN service_class")
