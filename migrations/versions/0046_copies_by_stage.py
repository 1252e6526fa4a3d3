"""Record the stage of a release for copies of requests and for their reviews.

It is null for earlier copies, and for those of gateways of the previous version during an upgrade.
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
