"""Record each request's session, as its client names it, so that an agent's conversation can be read. Add a limit of
one prompt's tokens.
"""

from __future__ import annotations

from alembic import op

revision = "0051"
down_revision = "0050"
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
    op.execute(
        "ALTER TABLE gateway.limits ADD COLUMN max_prompt_tokens bigint,"
        " ADD CONSTRAINT limits_max_prompt_tokens_check CHECK (max_prompt_tokens BETWEEN 1 AND 1000000000)"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.limits DROP COLUMN max_prompt_tokens")
    op.execute("DROP INDEX gateway.request_traces_session_organization_id_request_id_idx")
    op.execute(
        "ALTER TABLE gateway.request_traces DROP COLUMN session, DROP COLUMN session_agent, DROP COLUMN session_parent"
    )
