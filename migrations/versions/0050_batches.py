"""Add files, batches and the results of their lines, and the percentage that a price costs in the class `offline`.

An existing price still costs the same in every class, because it is on invoices.
"""

from __future__ import annotations

from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None

PRICES = """
ALTER TABLE gateway.prices ADD COLUMN offline_percent smallint DEFAULT 100 NOT NULL
    CONSTRAINT prices_offline_percent_check CHECK (offline_percent BETWEEN 0 AND 100);
ALTER TABLE gateway.usage_events ADD COLUMN price_percent smallint DEFAULT 100 NOT NULL;
ALTER TABLE gateway.invoice_days ADD COLUMN price_percent smallint DEFAULT 100 NOT NULL;
ALTER TABLE gateway.invoice_months ADD COLUMN price_percent smallint DEFAULT 100 NOT NULL;
"""
KEY = """
ALTER TABLE gateway.{table} DROP CONSTRAINT {table}_pkey;
ALTER TABLE gateway.{table}
    ADD CONSTRAINT {table}_pkey
        PRIMARY KEY ({time}, organization_id, project_id, key_id, model, tier, price_version{more});
"""
TABLES = """
CREATE TABLE gateway.files (
    id text NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    purpose text NOT NULL,
    filename text NOT NULL,
    bytes bigint NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz NOT NULL,
    stored boolean DEFAULT false NOT NULL,
    CONSTRAINT files_pkey PRIMARY KEY (id),
    CONSTRAINT files_purpose_check CHECK (purpose IN ('batch', 'batch_output')),
    CONSTRAINT files_bytes_check CHECK (bytes >= 0)
);
CREATE INDEX files_project_id_created_at_id_idx ON gateway.files (project_id, created_at, id);
CREATE INDEX files_organization_id_idx ON gateway.files (organization_id);

CREATE TABLE gateway.batches (
    id text NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    endpoint text NOT NULL,
    input_file_id text NOT NULL,
    metadata jsonb,
    output_seconds integer NOT NULL,
    status text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz NOT NULL,
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    cancelling_at timestamptz,
    completed_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelled_at timestamptz,
    errors jsonb,
    model text,
    total integer DEFAULT 0 NOT NULL,
    completed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    prompt_tokens bigint DEFAULT 0 NOT NULL,
    cached_tokens bigint DEFAULT 0 NOT NULL,
    completion_tokens bigint DEFAULT 0 NOT NULL,
    reasoning_tokens bigint DEFAULT 0 NOT NULL,
    output_file_id text NOT NULL,
    error_file_id text NOT NULL,
    lease_id uuid,
    lease_until timestamptz,
    turn_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT batches_pkey PRIMARY KEY (id),
    CONSTRAINT batches_status_check CHECK (status IN ('validating', 'in_progress', 'finalizing', 'cancelling',
        'completed', 'failed', 'expired', 'cancelled')),
    CONSTRAINT batches_lines_check CHECK (completed >= 0 AND failed >= 0 AND completed + failed <= total)
);
CREATE INDEX batches_project_id_created_at_id_idx ON gateway.batches (project_id, created_at, id);
CREATE INDEX batches_unfinished_idx ON gateway.batches (organization_id)
 WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');

CREATE TABLE gateway.batch_results (
    batch_id text NOT NULL,
    line integer NOT NULL,
    ok boolean NOT NULL,
    content bytea NOT NULL,
    CONSTRAINT batch_results_pkey PRIMARY KEY (batch_id, line),
    CONSTRAINT batch_results_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES gateway.batches (id)
);
"""


def upgrade() -> None:
    op.execute(PRICES)
    for table, time in (("invoice_days", "day"), ("invoice_months", "month")):
        op.execute(KEY.format(table=table, time=time, more=", price_percent"))
    op.execute(TABLES)


def downgrade() -> None:
    op.execute("DROP TABLE gateway.batch_results, gateway.batches, gateway.files")
    for table, time in (("invoice_days", "day"), ("invoice_months", "month")):
        op.execute(f"DELETE FROM gateway.{table} WHERE price_percent <> 100")  # noqa: S608
        op.execute(KEY.format(table=table, time=time, more=""))
        op.execute(f"ALTER TABLE gateway.{table} DROP COLUMN price_percent")
    op.execute("ALTER TABLE gateway.usage_events DROP COLUMN price_percent")
    op.execute("ALTER TABLE gateway.prices DROP COLUMN offline_percent")
