"""Where each request ran and how its tokens came: what objectives, goodput and diagnosis are computed from."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS = (
    "pool text",
    "replica_id text",
    "canary boolean",
    "stream boolean",
    "attempts smallint",
    "prompt_tokens integer",
    "cached_tokens integer",
    "completion_tokens integer",
    "ttft_ms double precision",
    "tpot_ms double precision",
    "itl_max_ms double precision",
    "gaps_over_100ms integer",
    "client_stall_ms double precision",
    "engine_queue_ms double precision",
    "engine_prefill_ms double precision",
    "retractions smallint",
)


def upgrade() -> None:
    op.execute(f"ALTER TABLE gateway.request_traces {', '.join(f'ADD COLUMN {column}' for column in COLUMNS)}")


def downgrade() -> None:
    names = (column.split()[0] for column in COLUMNS)
    op.execute(f"ALTER TABLE gateway.request_traces {', '.join(f'DROP COLUMN {name}' for name in names)}")
