"""What the application does to the ledger's days, it does by functions of the tables' owner; the system as an actor.

With these a role that owns nothing is enough for gateways and workers (migrations/privileges.py says what it gets): it
makes days and drops those whose retention is over, and can neither change a row nor switch a trigger off.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

ACTOR = """
ALTER TABLE gateway.audit_log
    DROP CONSTRAINT audit_log_actor_kind_check,
    ADD CONSTRAINT audit_log_actor_kind_check
        CHECK (actor_kind IN ('member', 'service_account', 'command', 'system'));
"""

# The search path is fixed: what runs with the owner's rights must not find a caller's objects. `day` is named in full
# because usage_retired_days has a column of that name.
DAYS = """
ALTER FUNCTION gateway.ensure_usage_day(date) SECURITY DEFINER SET search_path = pg_catalog, pg_temp;

CREATE FUNCTION gateway.retire_usage_day(day date, retention_days integer) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    name text := 'usage_events_' || to_char(retire_usage_day.day, 'YYYYMMDD');
    before timestamptz := date_trunc('day', now(), 'UTC') - make_interval(days => retention_days);
    pending boolean;
    late boolean;
    events bigint;
    amount bigint;
BEGIN
    IF retention_days < 35 THEN
        RAISE EXCEPTION 'events are kept for at least 35 days, not %', retention_days
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT part.inhdetachpending INTO pending
      FROM pg_class child LEFT JOIN pg_inherits part ON part.inhrelid = child.oid
     WHERE child.relnamespace = 'gateway'::regnamespace AND child.relkind = 'r' AND child.relname = name;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT pending THEN
        -- A day in which anything was recorded within the retention stays: it came late, or a clock was wrong.
        EXECUTE format('SELECT EXISTS (SELECT FROM gateway.%I WHERE recorded_at >= $1)', name) INTO late USING before;
        IF late OR retire_usage_day.day >= (before AT TIME ZONE 'UTC')::date THEN
            RETURN false;
        END IF;
        EXECUTE format('SELECT count(*), coalesce(sum(amount_micro), 0) FROM gateway.%I', name) INTO events, amount;
        -- Counted before the lock, which holds up every writer; what came meanwhile is looked for under it.
        LOCK TABLE ONLY gateway.usage_events IN ACCESS EXCLUSIVE MODE;
        EXECUTE format('SELECT EXISTS (SELECT FROM gateway.%I WHERE recorded_at >= $1)', name) INTO late USING before;
        IF late THEN
            RETURN false;
        END IF;
        INSERT INTO gateway.usage_retired_days (day, rows, amount_micro)
        VALUES (retire_usage_day.day, events, amount) ON CONFLICT DO NOTHING;
        EXECUTE format('ALTER TABLE gateway.usage_events DETACH PARTITION gateway.%I', name);
    ELSIF pending THEN -- half detached by a run of an earlier release
        EXECUTE format('ALTER TABLE gateway.usage_events DETACH PARTITION gateway.%I FINALIZE', name);
    END IF;
    EXECUTE format('DROP TABLE gateway.%I', name);
    INSERT INTO gateway.audit_log (actor_kind, actor_name, action, subject_kind, subject_id, before)
    SELECT 'system', 'slipstream worker', 'ledger.retire_day', 'ledger', retire_usage_day.day::text,
           jsonb_build_object('rows', retired.rows, 'amount_micro', retired.amount_micro)
      FROM (SELECT) AS one LEFT JOIN gateway.usage_retired_days retired ON retired.day = retire_usage_day.day;
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION gateway.ensure_usage_day(date), gateway.retire_usage_day(date, integer) FROM PUBLIC;
"""

# Rows that say `system` stay as they are, and whole: only new rows are held to the old rule.
DOWN = """
DROP FUNCTION gateway.retire_usage_day(date, integer);
ALTER FUNCTION gateway.ensure_usage_day(date) SECURITY INVOKER RESET search_path;
GRANT EXECUTE ON FUNCTION gateway.ensure_usage_day(date) TO PUBLIC;
ALTER TABLE gateway.audit_log
    DROP CONSTRAINT audit_log_actor_kind_check,
    ADD CONSTRAINT audit_log_actor_kind_check
        CHECK (actor_kind IN ('member', 'service_account', 'command')) NOT VALID;
"""


def upgrade() -> None:
    op.execute(ACTOR)
    op.execute(DAYS)


def downgrade() -> None:
    op.execute(DOWN)
