"""Copies of requests at which the customers' own engines failed, and which of them a release's judge has had."""

from __future__ import annotations

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Releases that run are judged on by what they began with. A colon before a digit would be a parameter.
    op.execute("""
ALTER TABLE gateway.shadow_pairs ADD COLUMN baseline_error_code text,
    ADD COLUMN transaction_id bigint NOT NULL DEFAULT (pg_current_xact_id()::text)::bigint,
    DROP CONSTRAINT shadow_pairs_outcome_check,
    ADD CONSTRAINT shadow_pairs_outcome_check
        CHECK (outcome IN ('compared', 'failed', 'late', 'long', 'answered', 'superseded'));
CREATE INDEX shadow_pairs_release_transaction_id_idx ON gateway.shadow_pairs (release, transaction_id);
UPDATE gateway.releases SET policy = replace(policy, '"weights":{', '"weights":{"shadow"\\:0.0,')
 WHERE policy IS NOT NULL;
""")


def downgrade() -> None:
    op.execute("""
UPDATE gateway.releases SET policy = regexp_replace(replace(policy, '{"shadow"\\:0.0,', '{'),
    ',"(shadow|copy_tolerance)":[0-9.e-]+', '', 'g') WHERE policy IS NOT NULL;
DROP INDEX gateway.shadow_pairs_release_transaction_id_idx;
DELETE FROM gateway.shadow_pairs WHERE baseline_error_code IS NOT NULL OR outcome = 'long';
ALTER TABLE gateway.shadow_pairs DROP COLUMN baseline_error_code, DROP COLUMN transaction_id,
    DROP CONSTRAINT shadow_pairs_outcome_check,
    ADD CONSTRAINT shadow_pairs_outcome_check CHECK (outcome IN ('compared', 'failed', 'late'));
""")
