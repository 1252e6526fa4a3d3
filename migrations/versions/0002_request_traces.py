"""Phases of each request by its id."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE gateway.request_traces (
            request_id text PRIMARY KEY,
            organization_id uuid NOT NULL,
            client_request_id text,
            status smallint NOT NULL,
            error_code text,
            total_ms double precision NOT NULL,
            phases_ms jsonb NOT NULL,
            recorded_at timestamptz NOT NULL DEFAULT now()
        );
        CREATE INDEX request_traces_recorded_at_idx ON gateway.request_traces USING brin (recorded_at);
        """
    )


def downgrade() -> None:
    op.execute("DROP TABLE gateway.request_traces")
