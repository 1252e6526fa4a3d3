"""Who made each version of the fleet, from which settings it descends, and what every gateway makes of it."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE gateway.desired_states
    ADD COLUMN settings_digest text,
    ADD COLUMN action text,
    ADD COLUMN actor text;
CREATE TABLE gateway.fleet_gateways (
    instance text PRIMARY KEY,
    settings_digest text,
    version bigint NOT NULL DEFAULT 0,
    refused_version bigint,
    refusal text,
    seen_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT fleet_gateways_refusal_check CHECK ((refused_version IS NULL) = (refusal IS NULL))
);
"""
DOWN = """
DROP TABLE gateway.fleet_gateways;
ALTER TABLE gateway.desired_states DROP COLUMN settings_digest, DROP COLUMN action, DROP COLUMN actor;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
