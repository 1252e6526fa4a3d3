"""Runs of evals in a schema of their own; the organization that asks them; and what a row of the ledger was for."""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# Without a default, which is no rewrite of a table, nor of any partition.
MARKS = """
ALTER TABLE gateway.usage_events ADD COLUMN purpose text;
ALTER TABLE gateway.organizations ADD COLUMN internal boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX organizations_internal_key ON gateway.organizations (internal) WHERE internal;
"""
JOB = """
    status text NOT NULL DEFAULT 'queued',
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    cancel_asked_at timestamptz,
    error text,
    lease_id uuid,
    lease_until timestamptz,
"""
STATUS = "CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled'))"
TABLES = f"""
CREATE SCHEMA evals;

CREATE TABLE evals.model_versions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    model text NOT NULL,
    pool text NOT NULL,
    engine_model text NOT NULL,
    weights_digest text,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT model_versions_model_pool_engine_model_weights_digest_key
        UNIQUE NULLS NOT DISTINCT (model, pool, engine_model, weights_digest)
);

CREATE TABLE evals.slice_versions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    slice text NOT NULL,
    version text NOT NULL,
    about text NOT NULL,
    goal double precision NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT slice_versions_slice_version_key UNIQUE (slice, version)
);

CREATE TABLE evals.runs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    model text NOT NULL,
    pool text,
    arm text,
    model_version_id uuid CONSTRAINT runs_model_version_id_fkey REFERENCES evals.model_versions (id),
    {JOB}
    first_seed bigint NOT NULL,
    night date,
    CONSTRAINT runs_status_check {STATUS},
    CONSTRAINT runs_arm_check CHECK (arm IN ('baseline', 'candidate'))
);
CREATE INDEX runs_created_at_id_idx ON evals.runs (created_at, id);
CREATE UNIQUE INDEX runs_night_key ON evals.runs (model, night) WHERE night IS NOT NULL;

CREATE TABLE evals.run_slices (
    run_id uuid CONSTRAINT run_slices_run_id_fkey REFERENCES evals.runs (id) ON DELETE CASCADE,
    slice text,
    slice_version_id uuid CONSTRAINT run_slices_slice_version_id_fkey REFERENCES evals.slice_versions (id),
    items integer NOT NULL,
    PRIMARY KEY (run_id, slice),
    CONSTRAINT run_slices_items_check CHECK (items > 0)
);

CREATE TABLE evals.items (
    run_id uuid CONSTRAINT items_run_id_fkey REFERENCES evals.runs (id) ON DELETE CASCADE,
    slice text,
    seed bigint,
    cluster text NOT NULL,
    answer text NOT NULL,
    score double precision NOT NULL,
    request_id text,
    latency_ms double precision NOT NULL,
    error_code text,
    answered_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, slice, seed),
    CONSTRAINT items_score_check CHECK (score >= 0 AND score <= 1)
);

CREATE TABLE evals.comparisons (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    model text NOT NULL,
    baseline_run uuid NOT NULL CONSTRAINT comparisons_baseline_run_fkey REFERENCES evals.runs (id),
    candidate_run uuid NOT NULL CONSTRAINT comparisons_candidate_run_fkey REFERENCES evals.runs (id),
    {JOB}
    rule jsonb NOT NULL,
    budget_items integer NOT NULL,
    decision text,
    verdict jsonb,
    release_id uuid,
    CONSTRAINT comparisons_status_check {STATUS},
    CONSTRAINT comparisons_decision_check CHECK (decision IN ('pass', 'fail', 'inconclusive')),
    CONSTRAINT comparisons_decided_check CHECK ((status = 'done') = (decision IS NOT NULL)),
    CONSTRAINT comparisons_budget_items_check CHECK (budget_items > 0)
);
CREATE INDEX comparisons_created_at_id_idx ON evals.comparisons (created_at, id);
CREATE INDEX comparisons_release_id_idx ON evals.comparisons (release_id);
"""

DOWN = """
DROP SCHEMA evals CASCADE;
DROP INDEX gateway.organizations_internal_key;
ALTER TABLE gateway.organizations DROP COLUMN internal;
ALTER TABLE gateway.usage_events DROP COLUMN purpose;
"""


def upgrade() -> None:
    op.execute(MARKS)
    op.execute(TABLES)


def downgrade() -> None:
    op.execute(DOWN)
