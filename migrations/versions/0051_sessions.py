"""The session that each request belongs to, as its client names it, so that a conversation of an agent can be read."""

from __future__ import annotations

from alembic import op

revision = "0051"
down_revision = "0048"
branch_labels = None
depends_on = None

INDEX = """
CREATE INDEX request_traces_session_organization_id_request_id_idx
    ON gateway.request_traces (session, organization_id, request_id) WHERE session IS NOT NULL
"""


def upgrade() -> None:
    op.execute(
        "ALTER TABLE gateway.request_traces"
        " ADD COLUMN session text, ADD COLUMN session_agent text, ADD COLUMN session_parent text"
    )
    op.execute(INDEX)


def downgrade() -> None:
    op.execute("DROP INDEX gateway.request_traces_session_organization_id_request_id_idx")
    op.execute(
        "ALTER TABLE gateway.request_traces DROP COLUMN session, DROP COLUMN session_agent, DROP COLUMN session_parent"
    )
