"""How long the engine took to compile the grammar that a request's output must keep, where it tells."""

from __future__ import annotations

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces ADD COLUMN engine_grammar_ms double precision")


def downgrade() -> None:
    op.execute("ALTER TABLE gateway.request_traces DROP COLUMN engine_grammar_ms")
