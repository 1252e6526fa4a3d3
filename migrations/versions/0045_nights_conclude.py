"""Store each night's verdict and the version of its model, and the nights that the workers plan."""

from __future__ import annotations

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE evals.runs ADD COLUMN version jsonb;

CREATE TABLE evals.nights (
    run_id uuid PRIMARY KEY CONSTRAINT nights_run_id_fkey REFERENCES evals.runs (id) ON DELETE CASCADE,
    model text NOT NULL,
    pool text NOT NULL,
    night date NOT NULL,
    judged_at timestamptz NOT NULL DEFAULT now(),
    decision text NOT NULL,
    reason text NOT NULL,
    version_since date,
    changed text[] NOT NULL,
    slices jsonb NOT NULL,
    release_id uuid,
    CONSTRAINT nights_decision_check CHECK (decision IN ('pass', 'fail', 'inconclusive'))
);
CREATE INDEX nights_judged_at_run_id_idx ON evals.nights (judged_at, run_id);
CREATE INDEX nights_model_night_idx ON evals.nights (model, night);

CREATE TABLE evals.night_plan (
    single boolean PRIMARY KEY DEFAULT true,
    reported_at timestamptz NOT NULL,
    schedule text NOT NULL,
    previous_at timestamptz,
    next_at timestamptz,
    items integer NOT NULL,
    slices jsonb NOT NULL,
    automatic_rollback boolean NOT NULL,
    CONSTRAINT night_plan_single_check CHECK (single)
);
"""

DOWN = """
DROP TABLE evals.night_plan;
DROP TABLE evals.nights;
ALTER TABLE evals.runs DROP COLUMN version;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
