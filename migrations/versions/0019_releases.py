"""Releases and their steps; which side of a split each request was on, for which release and of which session."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
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

CREATE TABLE gateway.releases (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now(),
    model text NOT NULL,
    candidate_pool text NOT NULL,
    engine_model text,
    baseline_pool text NOT NULL,
    control_pool text NOT NULL,
    stages double precision[] NOT NULL,
    shadow_share double precision NOT NULL,
    shadow_least integer NOT NULL,
    slices text[] NOT NULL,
    margins text NOT NULL,
    policy text,
    thresholds text,
    state text NOT NULL,
    stage integer NOT NULL,
    stage_began_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    step integer NOT NULL,
    reason text NOT NULL,
    told text NOT NULL DEFAULT '',
    watermark bigint,
    comparison_id uuid,
    desired_version bigint,
    CONSTRAINT releases_state_check CHECK (state IN ('waiting', 'running', 'held', 'promoted', 'rolled_back')),
    CONSTRAINT releases_stage_check CHECK (stage >= 0 AND stage < cardinality(stages)),
    CONSTRAINT releases_ended_at_check CHECK ((ended_at IS NOT NULL) = (state IN ('promoted', 'rolled_back'))),
    CONSTRAINT releases_policy_check CHECK (state = 'waiting' OR state = 'rolled_back' OR policy IS NOT NULL)
);
CREATE UNIQUE INDEX releases_model_key ON gateway.releases (model) WHERE ended_at IS NULL;
CREATE INDEX releases_created_at_id_idx ON gateway.releases (created_at, id);

CREATE TABLE gateway.release_steps (
    release_id uuid NOT NULL REFERENCES gateway.releases (id) ON DELETE CASCADE,
    step integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    event text NOT NULL,
    stage integer NOT NULL,
    to_stage integer NOT NULL,
    state text NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    evidence bytea,
    requests integer NOT NULL DEFAULT 0,
    sampled double precision NOT NULL DEFAULT 1,
    verdict text,
    desired_version bigint,
    PRIMARY KEY (release_id, step),
    CONSTRAINT release_steps_event_check CHECK (event IN ('start', 'begin', 'observe', 'advance', 'fail', 'undecided',
        'hold', 'resume', 'promote', 'roll_back', 'lost')),
    CONSTRAINT release_steps_state_check CHECK (state IN ('waiting', 'running', 'held', 'promoted', 'rolled_back'))
);
"""

DOWN = """
DROP TABLE gateway.release_steps;
DROP TABLE gateway.releases;
DROP INDEX gateway.request_traces_release_transaction_id_idx;
ALTER TABLE gateway.request_traces
    DROP COLUMN side, DROP COLUMN release, DROP COLUMN unit, DROP COLUMN transaction_id;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
