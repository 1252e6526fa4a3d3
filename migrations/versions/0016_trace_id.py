"""The OpenTelemetry trace that a request is part of, so that one finds the other."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces ADD COLUMN trace_id text")


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces DROP COLUMN trace_id")
