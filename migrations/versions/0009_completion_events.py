"""What became of completions in editors; of a request its client, the language and the length of its answer."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

UP = """
ALTER TABLE gateway.request_traces
    ADD COLUMN client text,
    ADD COLUMN language text,
    ADD COLUMN characters integer;

CREATE TABLE gateway.completion_events (
    request_id text COLLATE "C",
    project_id uuid,
    choice_index smallint,
    view_id text,
    type text,
    organization_id uuid NOT NULL,
    characters integer,
    elapsed_ms integer,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request_id, project_id, choice_index, view_id, type),
    CONSTRAINT completion_events_type_check CHECK (type IN ('view', 'select', 'select_part', 'dismiss')),
    CONSTRAINT completion_events_characters_check CHECK (characters >= 0),
    CONSTRAINT completion_events_elapsed_ms_check CHECK (elapsed_ms >= 0)
);
CREATE INDEX completion_events_recorded_at_idx ON gateway.completion_events USING brin (recorded_at);
CREATE INDEX completion_events_organization_id_request_id_idx
    ON gateway.completion_events (organization_id, request_id);
"""

DOWN = """
DROP TABLE gateway.completion_events;
ALTER TABLE gateway.request_traces DROP COLUMN characters, DROP COLUMN language, DROP COLUMN client;
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
