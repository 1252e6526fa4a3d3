"""Service level objectives by version, what each minute kept of them, and when that was added up."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE gateway.slo_objectives (
    version bigint,
    tier text,
    length text,
    valid_from timestamptz NOT NULL,
    ttft_ms double precision NOT NULL,
    tpot_ms double precision,
    itl_max_ms double precision,
    target double precision NOT NULL,
    PRIMARY KEY (version, tier, length),
    CONSTRAINT slo_objectives_tier_check CHECK (tier IN ('autocomplete', 'chat')),
    CONSTRAINT slo_objectives_length_check CHECK (length IN ('short', 'medium', 'long')),
    CONSTRAINT slo_objectives_target_check CHECK (target > 0 AND target < 1)
);

CREATE TABLE gateway.slo_minutes (
    minute timestamptz,
    organization_id uuid,
    project_id uuid,
    tier text,
    length text,
    model text,
    pool text,
    canary boolean,
    version bigint NOT NULL,
    requests bigint NOT NULL,
    counted bigint NOT NULL,
    failed bigint NOT NULL,
    shed bigint NOT NULL,
    limited bigint NOT NULL,
    abandoned bigint NOT NULL,
    superseded bigint NOT NULL,
    good bigint NOT NULL,
    ttft_kept bigint NOT NULL,
    tpot_kept bigint NOT NULL,
    gap_kept bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    good_tokens bigint NOT NULL,
    PRIMARY KEY (minute, organization_id, project_id, tier, length, model, pool, canary)
);
CREATE INDEX slo_minutes_organization_id_minute_idx ON gateway.slo_minutes (organization_id, minute);

CREATE TABLE gateway.slo_roll_up_runs (
    started_at timestamptz PRIMARY KEY,
    seconds double precision NOT NULL,
    minutes integer NOT NULL
);
"""

DOWN = """
DROP TABLE gateway.slo_roll_up_runs;
DROP TABLE gateway.slo_minutes;
DROP TABLE gateway.slo_objectives;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
