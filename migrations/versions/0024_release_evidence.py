"""What a person grants a release beyond its budget, how much of its evidence one organization may have, and how its
slices are compared; what a run of evals keeps of forgotten items."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE gateway.releases
    ADD COLUMN more_units integer NOT NULL DEFAULT 0,
    ADD COLUMN organization_share double precision,
    ADD COLUMN slice_rule text NOT NULL DEFAULT '{}';
ALTER TABLE gateway.release_steps ADD COLUMN more_units integer NOT NULL DEFAULT 0;
ALTER TABLE evals.run_slices
    ADD COLUMN forgotten_items integer NOT NULL DEFAULT 0,
    ADD COLUMN forgotten_score double precision NOT NULL DEFAULT 0;
-- Nothing ever filled it.
ALTER TABLE evals.model_versions
    DROP COLUMN weights_digest,
    ADD CONSTRAINT model_versions_model_pool_engine_model_key UNIQUE (model, pool, engine_model);
"""
DOWN = """
ALTER TABLE evals.model_versions
    DROP CONSTRAINT model_versions_model_pool_engine_model_key,
    ADD COLUMN weights_digest text,
    ADD CONSTRAINT model_versions_model_pool_engine_model_weights_digest_key
        UNIQUE NULLS NOT DISTINCT (model, pool, engine_model, weights_digest);
ALTER TABLE evals.run_slices DROP COLUMN forgotten_items, DROP COLUMN forgotten_score;
ALTER TABLE gateway.release_steps DROP COLUMN more_units;
ALTER TABLE gateway.releases DROP COLUMN more_units, DROP COLUMN organization_share, DROP COLUMN slice_rule;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
