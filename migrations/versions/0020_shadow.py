"""Pairs of answers to one request, the customer's and a candidate's; what people review of them, and their votes."""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE gateway.shadow_pairs (
    id text COLLATE "C" PRIMARY KEY,
    model text NOT NULL,
    release text NOT NULL,
    baseline_pool text NOT NULL,
    candidate_pool text NOT NULL,
    unit bigint NOT NULL,
    prompt_tokens integer NOT NULL,
    greedy boolean NOT NULL,
    outcome text NOT NULL,
    error_code text,
    same_text boolean,
    first_difference integer,
    baseline_characters integer,
    candidate_characters integer,
    baseline_finish text,
    candidate_finish text,
    baseline_json_valid boolean,
    candidate_json_valid boolean,
    same_tool_calls boolean,
    baseline_refused boolean,
    candidate_refused boolean,
    baseline_ttft_ms double precision,
    candidate_ttft_ms double precision,
    baseline_tokens_per_s double precision,
    candidate_tokens_per_s double precision,
    baseline_cached_tokens integer,
    candidate_cached_tokens integer,
    baseline_completion_tokens integer,
    candidate_completion_tokens integer,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT shadow_pairs_outcome_check CHECK (outcome IN ('compared', 'failed', 'late')),
    CONSTRAINT shadow_pairs_compared_check CHECK ((outcome = 'compared') = (same_text IS NOT NULL))
);
CREATE INDEX shadow_pairs_recorded_at_idx ON gateway.shadow_pairs USING brin (recorded_at);
CREATE INDEX shadow_pairs_release_model_idx ON gateway.shadow_pairs (release, model);

CREATE TABLE gateway.reviews (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    model text NOT NULL,
    release text NOT NULL,
    unit bigint NOT NULL,
    candidate_left boolean NOT NULL,
    organization_id uuid,
    prompt text,
    baseline text,
    candidate text,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT reviews_texts_check CHECK (num_nulls(organization_id, prompt, baseline, candidate) IN (0, 4))
);
CREATE INDEX reviews_recorded_at_id_idx ON gateway.reviews (recorded_at, id);
CREATE INDEX reviews_organization_id_idx ON gateway.reviews (organization_id);

CREATE TABLE gateway.review_votes (
    review_id uuid NOT NULL REFERENCES gateway.reviews (id) ON DELETE CASCADE,
    reviewer text NOT NULL,
    choice text NOT NULL,
    voted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT review_votes_choice_check CHECK (choice IN ('left', 'right', 'both', 'neither', 'skip')),
    PRIMARY KEY (review_id, reviewer)
);

-- A session's first decisive vote is its coin, whatever is voted later.
CREATE TABLE gateway.review_coins (
    release text NOT NULL,
    unit bigint NOT NULL,
    worse boolean NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (release, unit)
);
CREATE INDEX review_coins_recorded_at_idx ON gateway.review_coins USING brin (recorded_at);

-- What was voted stays, as numbers: which of two answers was better names nobody.
CREATE FUNCTION gateway.forget_review_texts(whose uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM gateway.reviews
     WHERE organization_id = whose AND NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = id);
    UPDATE gateway.reviews SET organization_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL
     WHERE organization_id = whose;
$$;
CREATE FUNCTION gateway.forget_organization_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = OLD.id;
    DELETE FROM gateway.prefix_texts WHERE organization_id = OLD.id;
    PERFORM gateway.forget_review_texts(OLD.id);
    RETURN NULL;
END
$$;
CREATE TRIGGER organizations_deleted AFTER DELETE ON gateway.organizations
    FOR EACH ROW EXECUTE FUNCTION gateway.forget_organization_texts();
"""
FORGET = """
CREATE OR REPLACE FUNCTION gateway.forget_completion_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = NEW.id;
    DELETE FROM gateway.prefix_texts WHERE organization_id = NEW.id;
{more}    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    op.execute(TABLES)
    op.execute(FORGET.format(more="    PERFORM gateway.forget_review_texts(NEW.id);\n"))


def downgrade() -> None:
    op.execute(FORGET.format(more=""))
    op.execute("""
        DROP TRIGGER organizations_deleted ON gateway.organizations;
        DROP FUNCTION gateway.forget_organization_texts();
        DROP FUNCTION gateway.forget_review_texts(uuid);
        DROP TABLE gateway.review_coins;
        DROP TABLE gateway.review_votes;
        DROP TABLE gateway.reviews;
        DROP TABLE gateway.shadow_pairs;
    """)
