"""A gateway that is told that a day's partition is there finds it there.

A transaction is seen before others are told to forget what they remember of its tables. Whoever found a partition in
between was told that there was nothing to make, and its next insert still went by a table without it. The lock is
given back only after they were told, so it is taken before the partition is looked for.
"""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

FUNCTION = """
CREATE OR REPLACE FUNCTION gateway.ensure_usage_day(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name text := 'usage_events_' || to_char(day, 'YYYYMMDD');
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
BEGIN{before}
    PERFORM pg_advisory_xact_lock(1970430573);
    -- Not to_regclass{again}: it remembers what it did not find before another one made it.
    PERFORM FROM pg_class WHERE relnamespace = 'gateway'::regnamespace AND relname = name;
    IF FOUND THEN
        RETURN false;
    END IF;
    -- Made apart and attached: CREATE ... PARTITION OF would wait for every reader and hold up every writer.
    EXECUTE format('CREATE TABLE gateway.%I (LIKE gateway.usage_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS '
                   'INCLUDING INDEXES)', name);
    EXECUTE format('CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.%I '
                   'FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change()', name);
    EXECUTE format('ALTER TABLE gateway.usage_events ATTACH PARTITION gateway.%I FOR VALUES FROM (%L) TO (%L)', name,
                   gateway.usage_first_id(first), gateway.usage_first_id(first + interval '24 hours'));
    RETURN true;
END
$$;
"""
LOOKED_FOR_FIRST = """
    IF to_regclass('gateway.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;"""


def upgrade() -> None:
    op.execute(FUNCTION.format(before="", again=""))


def downgrade() -> None:
    op.execute(FUNCTION.format(before=LOOKED_FOR_FIRST, again=" again"))
