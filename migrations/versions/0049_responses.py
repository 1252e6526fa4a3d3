"""Responses that clients of the Responses API had stored."""

from __future__ import annotations

from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE gateway.responses (
    id text COLLATE "C" PRIMARY KEY,
    organization_id uuid NOT NULL REFERENCES gateway.organizations (id) ON DELETE CASCADE,
    project_id uuid NOT NULL,
    previous_id text COLLATE "C",
    input bytea NOT NULL,
    response bytea NOT NULL,
    size_bytes integer NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
)
"""
INDEXES = (
    "CREATE INDEX responses_recorded_at_idx ON gateway.responses USING brin (recorded_at)",
    "CREATE INDEX responses_organization_id_recorded_at_id_idx ON gateway.responses"
    " (organization_id, recorded_at, id) INCLUDE (size_bytes)",
)


def upgrade() -> None:
    op.execute(TABLE)
    for index in INDEXES:
        op.execute(index)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.responses")
