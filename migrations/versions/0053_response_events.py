"""Store events of streamed background responses until some minutes after their end."""

from __future__ import annotations

from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

TABLE = """
CREATE TABLE gateway.response_events (
    response_id text COLLATE "C" REFERENCES gateway.responses (id) ON DELETE CASCADE,
    first integer,
    next integer NOT NULL,
    events bytea NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (response_id, first)
)
"""


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.background_responses ADD COLUMN next_event integer")
    op.execute(TABLE)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.response_events")
    op.execute("ALTER TABLE gateway.background_responses DROP COLUMN next_event")
