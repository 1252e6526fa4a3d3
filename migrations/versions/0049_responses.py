"""Add responses and conversations that clients of the Responses API store."""

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
CONVERSATIONS = """
CREATE TABLE gateway.conversations (
    id text COLLATE "C" PRIMARY KEY,
    organization_id uuid NOT NULL REFERENCES gateway.organizations (id) ON DELETE CASCADE,
    project_id uuid NOT NULL,
    metadata bytea NOT NULL,
    items integer NOT NULL DEFAULT 0,
    size_bytes integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    used_at timestamptz NOT NULL DEFAULT now()
)
"""
ITEMS = """
CREATE TABLE gateway.conversation_items (
    conversation_id text COLLATE "C" NOT NULL REFERENCES gateway.conversations (id) ON DELETE CASCADE,
    id text COLLATE "C" NOT NULL,
    position bigint GENERATED ALWAYS AS IDENTITY,
    item bytea NOT NULL,
    PRIMARY KEY (conversation_id, id)
)
"""
INDEXES = (
    "CREATE INDEX responses_recorded_at_idx ON gateway.responses USING brin (recorded_at)",
    "CREATE INDEX responses_organization_id_recorded_at_id_idx ON gateway.responses"
    " (organization_id, recorded_at, id) INCLUDE (size_bytes)",
    "CREATE INDEX conversations_organization_id_used_at_id_idx ON gateway.conversations"
    " (organization_id, used_at, id) INCLUDE (size_bytes)",
)


def upgrade() -> None:
    op.execute(TABLE)
    op.execute(CONVERSATIONS)
    op.execute(ITEMS)
    for index in INDEXES:
        op.execute(index)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.conversation_items, gateway.conversations, gateway.responses")
