"""What a person grants a release beyond its budget of evidence, and how much of that one organization may have."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0022"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE gateway.releases
    ADD COLUMN more_units integer NOT NULL DEFAULT 0,
    ADD COLUMN organization_share double precision;
ALTER TABLE gateway.release_steps ADD COLUMN more_units integer NOT NULL DEFAULT 0;
"""
DOWN = """
ALTER TABLE gateway.release_steps DROP COLUMN more_units;
ALTER TABLE gateway.releases DROP COLUMN more_units, DROP COLUMN organization_share;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
