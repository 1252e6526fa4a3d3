"""Add background responses: their requests until the worker has run them, and their status."""

from __future__ import annotations

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE gateway.background_responses (
    id text COLLATE "C" PRIMARY KEY REFERENCES gateway.responses (id) ON DELETE CASCADE,
    organization_id uuid NOT NULL,
    key_id uuid NOT NULL,
    conversation_id text COLLATE "C" UNIQUE,
    request bytea NOT NULL,
    failures smallint NOT NULL DEFAULT 0,
    lease_id uuid,
    lease_until timestamptz,
    turn_at timestamptz NOT NULL DEFAULT now()
)
"""


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.responses ADD COLUMN status text")
    op.execute(TABLE)
    op.execute(
        "CREATE INDEX background_responses_organization_id_idx ON gateway.background_responses (organization_id)"
    )


def downgrade() -> None:
    op.execute("DROP TABLE gateway.background_responses")
    op.execute("DELETE FROM gateway.responses WHERE status IS NOT NULL")
    op.execute("ALTER TABLE gateway.responses DROP COLUMN status")
