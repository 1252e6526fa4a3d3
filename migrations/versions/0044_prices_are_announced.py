"""Announce changed prices to gateways; record a budget's thresholds for each limit that it has in a month."""

from __future__ import annotations

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

UP = """
CREATE FUNCTION gateway.notify_prices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_prices', '');
    RETURN NULL;
END
$$;

CREATE TRIGGER prices_notify AFTER INSERT OR UPDATE OR DELETE ON gateway.prices
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_prices();

ALTER TABLE gateway.budget_crossings DROP CONSTRAINT budget_crossings_pkey;
ALTER TABLE gateway.budget_crossings
    ADD CONSTRAINT budget_crossings_pkey PRIMARY KEY (level, subject_id, tier, month, percent, limit_micro);
"""

# Of several limits in a month, the first one to reach the threshold stays.
DOWN = """
DELETE FROM gateway.budget_crossings AS later
 USING gateway.budget_crossings AS earlier
 WHERE (later.level, later.subject_id, later.tier, later.month, later.percent)
     = (earlier.level, earlier.subject_id, earlier.tier, earlier.month, earlier.percent)
   AND (later.crossed_at, later.limit_micro) > (earlier.crossed_at, earlier.limit_micro);
ALTER TABLE gateway.budget_crossings DROP CONSTRAINT budget_crossings_pkey;
ALTER TABLE gateway.budget_crossings
    ADD CONSTRAINT budget_crossings_pkey PRIMARY KEY (level, subject_id, tier, month, percent);

DROP TRIGGER prices_notify ON gateway.prices;
DROP FUNCTION gateway.notify_prices();
"""


def upgrade() -> None:
    op.execute(UP)


def downgrade() -> None:
    op.execute(DOWN)
