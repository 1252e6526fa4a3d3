"""Requests refused for lack of room whose organization asked for more than its share: told apart, and added up."""

from __future__ import annotations

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces ADD COLUMN over_share boolean")
    op.execute("ALTER TABLE gateway.slo_minutes ADD COLUMN over_share bigint NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.slo_minutes DROP COLUMN over_share")
    op.execute("ALTER TABLE gateway.request_traces DROP COLUMN over_share")
