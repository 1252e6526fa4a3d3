"""Note of copies of requests, and of their reviews, in which stage of a release they were made.

Null for those made before, and by gateways of the version before while an upgrade is under way.
"""

from __future__ import annotations

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

TABLES = ("shadow_pairs", "reviews")


def upgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE gateway.{table} ADD COLUMN stage_share double precision")


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"ALTER TABLE gateway.{table} DROP COLUMN stage_share")
