"""What a person grants a release beyond its budget, how much of its evidence one organization may have, and how its
slices are compared; what a run of evals keeps of forgotten items; which projects let reviewers
read their prompts."""

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

ALTER TABLE gateway.projects
    ADD COLUMN allow_reviews boolean NOT NULL DEFAULT false,
    ADD COLUMN allow_reviews_since timestamptz NOT NULL DEFAULT '-infinity';
-- Kept by an older and wider consent, which nobody gave for this.
DELETE FROM gateway.reviews WHERE NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = id);
UPDATE gateway.reviews SET organization_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL;
ALTER TABLE gateway.reviews RENAME COLUMN organization_id TO project_id;
ALTER INDEX gateway.reviews_organization_id_idx RENAME TO reviews_project_id_idx;

-- What was asked before is not stored, though it may still wait in a gateway.
CREATE FUNCTION gateway.note_allow_reviews() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.allow_reviews_since := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE TRIGGER projects_allow_reviews BEFORE UPDATE ON gateway.projects
    FOR EACH ROW WHEN (NEW.allow_reviews AND NOT OLD.allow_reviews) EXECUTE FUNCTION gateway.note_allow_reviews();

CREATE OR REPLACE FUNCTION gateway.forget_review_texts(whose uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM gateway.reviews
     WHERE project_id = whose AND NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = id);
    UPDATE gateway.reviews SET project_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL
     WHERE project_id = whose;
$$;
CREATE FUNCTION gateway.forget_reviews_of_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gateway.forget_review_texts(OLD.id);
    RETURN NULL;
END
$$;
CREATE TRIGGER projects_forget_reviews AFTER UPDATE ON gateway.projects
    FOR EACH ROW WHEN (OLD.allow_reviews AND NOT NEW.allow_reviews)
    EXECUTE FUNCTION gateway.forget_reviews_of_project();
CREATE TRIGGER projects_deleted AFTER DELETE ON gateway.projects
    FOR EACH ROW EXECUTE FUNCTION gateway.forget_reviews_of_project();

DROP TRIGGER projects_notify ON gateway.projects;
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW
    WHEN ((OLD.organization_id, OLD.models, OLD.tiers, OLD.disabled_at, OLD.allow_reviews)
        IS DISTINCT FROM (NEW.organization_id, NEW.models, NEW.tiers, NEW.disabled_at, NEW.allow_reviews))
    EXECUTE FUNCTION gateway.notify_keys_of('project');
"""
DOWN = """
DROP TRIGGER projects_notify ON gateway.projects;
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW
    WHEN ((OLD.organization_id, OLD.models, OLD.tiers, OLD.disabled_at)
        IS DISTINCT FROM (NEW.organization_id, NEW.models, NEW.tiers, NEW.disabled_at))
    EXECUTE FUNCTION gateway.notify_keys_of('project');
DROP TRIGGER projects_deleted ON gateway.projects;
DROP TRIGGER projects_forget_reviews ON gateway.projects;
DROP FUNCTION gateway.forget_reviews_of_project();
DROP TRIGGER projects_allow_reviews ON gateway.projects;
DROP FUNCTION gateway.note_allow_reviews();
DELETE FROM gateway.reviews WHERE NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = id);
UPDATE gateway.reviews SET project_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL;
ALTER INDEX gateway.reviews_project_id_idx RENAME TO reviews_organization_id_idx;
ALTER TABLE gateway.reviews RENAME COLUMN project_id TO organization_id;
CREATE OR REPLACE FUNCTION gateway.forget_review_texts(whose uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM gateway.reviews
     WHERE organization_id = whose AND NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = id);
    UPDATE gateway.reviews SET organization_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL
     WHERE organization_id = whose;
$$;
ALTER TABLE gateway.projects DROP COLUMN allow_reviews, DROP COLUMN allow_reviews_since;
ALTER TABLE evals.model_versions
    DROP CONSTRAINT model_versions_model_pool_engine_model_key,
    ADD COLUMN weights_digest text,
    ADD CONSTRAINT model_versions_model_pool_engine_model_weights_digest_key
        UNIQUE NULLS NOT DISTINCT (model, pool, engine_model, weights_digest);
ALTER TABLE evals.run_slices DROP COLUMN forgotten_items, DROP COLUMN forgotten_score;
ALTER TABLE gateway.release_steps DROP COLUMN more_units;
ALTER TABLE gateway.releases DROP COLUMN more_units, DROP COLUMN organization_share, DROP COLUMN slice_rule;
"""
FORGET = """
CREATE OR REPLACE FUNCTION gateway.{name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = {row}.id;
    DELETE FROM gateway.prefix_texts WHERE organization_id = {row}.id;
{more}    RETURN NULL;
END
$$;
"""
FORGETTING = (("forget_completion_texts", "NEW"), ("forget_organization_texts", "OLD"))
"""Functions that forgot reviews as well, and the row each is about."""


def upgrade() -> None:
    op.execute(UP)
    for name, row in FORGETTING:
        op.execute(FORGET.format(name=name, row=row, more=""))


def downgrade() -> None:
    op.execute(DOWN)
    for name, row in FORGETTING:
        op.execute(FORGET.format(name=name, row=row, more=f"    PERFORM gateway.forget_review_texts({row}.id);\n"))
