"""The texts where prompts differ, of organizations that want prompts kept; deleted at once when they no longer do."""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

FORGET = """
CREATE OR REPLACE FUNCTION gateway.forget_completion_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = NEW.id;
{more}    RETURN NULL;
END
$$;
"""
TABLE = """
CREATE TABLE gateway.prefix_texts (
    request_id text COLLATE "C" PRIMARY KEY,
    project_id uuid NOT NULL,
    organization_id uuid NOT NULL,
    template text NOT NULL,
    cause text NOT NULL,
    part text,
    part_number integer,
    earlier text,
    later text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX prefix_texts_recorded_at_idx ON gateway.prefix_texts USING brin (recorded_at);
CREATE INDEX prefix_texts_organization_id_request_id_idx ON gateway.prefix_texts (organization_id, request_id);
"""


def upgrade() -> None:
    op.execute(TABLE)
    op.execute(FORGET.format(more="    DELETE FROM gateway.prefix_texts WHERE organization_id = NEW.id;\n"))


def downgrade() -> None:
    op.execute(FORGET.format(more=""))
    op.execute("DROP TABLE gateway.prefix_texts")
