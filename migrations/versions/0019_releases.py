"""Which side of a split each request was on, for whom and by whose session; in an order that loses none."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0017"
branch_labels = None
depends_on = None

# The default is set apart, so that rows which are there keep null: no release asks for them, and none is rewritten.
UP = """
ALTER TABLE gateway.request_traces
    ADD COLUMN side text,
    ADD COLUMN release text,
    ADD COLUMN unit bigint,
    ADD COLUMN transaction_id bigint;
ALTER TABLE gateway.request_traces ALTER COLUMN transaction_id SET DEFAULT (pg_current_xact_id()::text)::bigint;
CREATE INDEX request_traces_release_transaction_id_idx ON gateway.request_traces (release, transaction_id)
    WHERE release IS NOT NULL;
"""

DOWN = """
DROP INDEX gateway.request_traces_release_transaction_id_idx;
ALTER TABLE gateway.request_traces
    DROP COLUMN side, DROP COLUMN release, DROP COLUMN unit, DROP COLUMN transaction_id;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
