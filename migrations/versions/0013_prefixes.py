"""How prompts hang together: samples of requests, their sums by hour, and drops of a tenant's reusable share."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

UP = """
CREATE TABLE gateway.prefix_samples (
    request_id text COLLATE "C" PRIMARY KEY,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    endpoint text NOT NULL,
    template text NOT NULL,
    session_id text NOT NULL,
    turn integer NOT NULL,
    prompt_tokens integer NOT NULL,
    reusable_tokens integer NOT NULL,
    differing_token integer,
    part text,
    part_number integer,
    cause text NOT NULL,
    blocks bigint[] NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX prefix_samples_recorded_at_idx ON gateway.prefix_samples USING brin (recorded_at);
CREATE INDEX prefix_samples_organization_id_request_id_idx ON gateway.prefix_samples (organization_id, request_id);

CREATE TABLE gateway.prefix_shares (
    organization_id uuid,
    hour timestamptz,
    model text,
    endpoint text,
    template text,
    cause text,
    part text,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    reusable_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    differing_token integer,
    PRIMARY KEY (organization_id, hour, model, endpoint, template, cause, part)
);

CREATE TABLE gateway.prefix_drops (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    organization_id uuid NOT NULL,
    began_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    usual_share double precision NOT NULL,
    share double precision NOT NULL,
    template text,
    model text,
    cause text,
    part text,
    part_number smallint,
    differing_token integer
);
CREATE UNIQUE INDEX prefix_drops_open_key ON gateway.prefix_drops (organization_id) WHERE ended_at IS NULL;
CREATE INDEX prefix_drops_organization_id_began_at_idx ON gateway.prefix_drops (organization_id, began_at);
"""

DOWN = """
DROP TABLE gateway.prefix_drops;
DROP TABLE gateway.prefix_shares;
DROP TABLE gateway.prefix_samples;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
