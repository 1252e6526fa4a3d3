"""The ledger by day: partitions, append-only, prices and amounts; roll-ups by hour and day; reconciliation.

A request's id begins with the time it arrived (48 bits of milliseconds as hex), and the table is partitioned by
ranges of that id: the key needs no second column, so the database itself keeps (request id, attempt) and the one billed
attempt unique over all days.
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# Days lie between req_016f5e66e800 (2020-01-01) and req_03bb2cc3d800 (2100-01-01). Ids that carry no time, such as
# those of an older release, lie in the first and the last partition; of those made of random digits one in a hundred
# does not, and gets the day it seems to name.
FUNCTIONS = """
CREATE FUNCTION gateway.usage_first_id(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'req_' || lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0');

CREATE FUNCTION gateway.usage_day_of(request_id text) RETURNS date LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE
    WHEN request_id COLLATE "C" >= 'req_016f5e66e800' AND request_id COLLATE "C" < 'req_03bb2cc3d800'
     AND request_id ~ '^req_[0-9a-f]{12}'
    THEN date '1970-01-01' + (('x' || substr(request_id, 5, 12))::bit(48)::bigint / 86400000)::int
END;

CREATE FUNCTION gateway.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of %: its rows are never changed or deleted; retention drops whole days', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE FUNCTION gateway.ensure_usage_day(day date) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    name text := 'usage_events_' || to_char(day, 'YYYYMMDD');
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
BEGIN
    IF to_regclass('gateway.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(1970430573);
    -- Not to_regclass again: it remembers what it did not find before another one made it.
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

EVENTS = """
-- The name of every constraint shall be that of a new table: the old one goes first.
CREATE TEMPORARY TABLE usage_events_before ON COMMIT DROP AS SELECT * FROM gateway.usage_events;
DROP TABLE gateway.usage_events;

CREATE TABLE gateway.usage_events (
    request_id text COLLATE "C" NOT NULL,
    attempt smallint NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    endpoint text NOT NULL,
    pool text,
    replica_id text,
    driver text,
    stream boolean NOT NULL,
    prompt_tokens integer NOT NULL,
    cached_tokens integer NOT NULL,
    cache_write_tokens integer DEFAULT 0 NOT NULL,
    completion_tokens integer NOT NULL,
    reasoning_tokens integer NOT NULL,
    draft_tokens integer DEFAULT 0 NOT NULL,
    accepted_draft_tokens integer DEFAULT 0 NOT NULL,
    outcome text NOT NULL,
    finish text NOT NULL,
    billed boolean NOT NULL,
    price_version bigint,
    amount_micro bigint DEFAULT 0 NOT NULL,
    status smallint,
    error_code text,
    phases_ms jsonb NOT NULL,
    requested_at timestamptz NOT NULL,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    gateway_id text NOT NULL,
    CONSTRAINT usage_events_pkey PRIMARY KEY (request_id, attempt),
    CONSTRAINT usage_events_outcome_check CHECK (outcome IN ('exact', 'lower_bound', 'unknown')),
    CONSTRAINT usage_events_finish_check
        CHECK (finish IN ('complete', 'client_gone', 'engine_error', 'not_placed', 'gateway_crash')),
    CONSTRAINT usage_events_amount_micro_check
        CHECK (amount_micro >= 0 AND (amount_micro = 0 OR billed AND price_version IS NOT NULL))
) PARTITION BY RANGE (request_id);
CREATE UNIQUE INDEX usage_events_one_billed_attempt_idx ON gateway.usage_events (request_id) WHERE billed;
CREATE INDEX usage_events_organization_id_request_id_attempt_idx
    ON gateway.usage_events (organization_id, request_id, attempt);
CREATE INDEX usage_events_project_id_request_id_attempt_idx
    ON gateway.usage_events (project_id, request_id, attempt);
CREATE INDEX usage_events_key_id_request_id_attempt_idx
    ON gateway.usage_events (key_id, request_id, attempt);
CREATE INDEX usage_events_closed_at_idx ON gateway.usage_events USING brin (closed_at);
CREATE INDEX usage_events_recorded_at_idx ON gateway.usage_events USING brin (recorded_at);

CREATE TABLE gateway.usage_events_first PARTITION OF gateway.usage_events
    FOR VALUES FROM (MINVALUE) TO ('req_016f5e66e800');
CREATE TABLE gateway.usage_events_last PARTITION OF gateway.usage_events
    FOR VALUES FROM ('req_03bb2cc3d800') TO (MAXVALUE);

SELECT gateway.ensure_usage_day(day)
  FROM (SELECT DISTINCT gateway.usage_day_of(request_id) AS day FROM usage_events_before) days
 WHERE day IS NOT NULL;
INSERT INTO gateway.usage_events
       (request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, pool, replica_id, stream,
        prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed, status, error_code,
        phases_ms, requested_at, opened_at, closed_at, recorded_at, gateway_id)
SELECT request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, pool, replica_id, stream,
       prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed, status, error_code,
       phases_ms, min(opened_at) OVER (PARTITION BY request_id), opened_at, closed_at, recorded_at, gateway_id
  FROM usage_events_before;
DROP TABLE usage_events_before;

CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON gateway.usage_events
    FOR EACH ROW EXECUTE FUNCTION gateway.refuse_change();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.usage_events
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.usage_events_first
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.usage_events_last
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change();
"""

TOTALS = """
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    amount_micro bigint NOT NULL,
    computed_at timestamptz DEFAULT now() NOT NULL,
"""

# The hourly table is made anew and filled by the first run of the roll-up: its hours are those of arrival now.
ROLL_UPS = f"""
DROP TABLE gateway.usage_hourly;
CREATE TABLE gateway.usage_hourly (
    hour timestamptz NOT NULL,
    {TOTALS}
    CONSTRAINT usage_hourly_pkey PRIMARY KEY (hour, organization_id, project_id, key_id, model, tier)
);
CREATE INDEX usage_hourly_organization_id_hour_idx ON gateway.usage_hourly (organization_id, hour);
CREATE TABLE gateway.usage_daily (
    day date NOT NULL,
    {TOTALS}
    CONSTRAINT usage_daily_pkey PRIMARY KEY (day, organization_id, project_id, key_id, model, tier)
);
CREATE INDEX usage_daily_organization_id_day_idx ON gateway.usage_daily (organization_id, day);
CREATE INDEX usage_daily_project_id_day_idx ON gateway.usage_daily (project_id, day);
CREATE TABLE gateway.usage_roll_up_runs (
    started_at timestamptz NOT NULL,
    seconds double precision NOT NULL,
    hours integer NOT NULL,
    CONSTRAINT usage_roll_up_runs_pkey PRIMARY KEY (started_at)
);
CREATE TABLE gateway.usage_retired_days (
    day date NOT NULL,
    rows bigint NOT NULL,
    amount_micro bigint NOT NULL,
    retired_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT usage_retired_days_pkey PRIMARY KEY (day)
);
CREATE TABLE gateway.usage_verifications (
    checked_at timestamptz DEFAULT now() NOT NULL,
    from_day date NOT NULL,
    until_day date NOT NULL,
    rows bigint NOT NULL,
    wrong_hours bigint NOT NULL,
    wrong_days bigint NOT NULL,
    wrong_amounts bigint NOT NULL,
    CONSTRAINT usage_verifications_pkey PRIMARY KEY (checked_at)
);
"""

# A range over text makes the exclusion possible with what PostgreSQL itself has; equality in GiST needs an extension.
PRICES = """
CREATE TYPE gateway.text_range AS RANGE (subtype = text, collation = "C");
CREATE TABLE gateway.prices (
    version bigint GENERATED ALWAYS AS IDENTITY NOT NULL,
    model text NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_until timestamptz,
    input_micro bigint NOT NULL,
    cached_input_micro bigint NOT NULL,
    cache_write_micro bigint NOT NULL,
    output_micro bigint NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT prices_pkey PRIMARY KEY (version),
    CONSTRAINT prices_valid_until_check CHECK (valid_until > valid_from),
    CONSTRAINT prices_input_micro_check CHECK (input_micro BETWEEN 0 AND 1000000000000),
    CONSTRAINT prices_cached_input_micro_check CHECK (cached_input_micro BETWEEN 0 AND 1000000000000),
    CONSTRAINT prices_cache_write_micro_check CHECK (cache_write_micro BETWEEN 0 AND 1000000000000),
    CONSTRAINT prices_output_micro_check CHECK (output_micro BETWEEN 0 AND 1000000000000),
    CONSTRAINT prices_one_at_a_time EXCLUDE USING gist (
        gateway.text_range(model, model, '[]') WITH &&, tstzrange(valid_from, valid_until) WITH &&)
);
CREATE INDEX prices_model_valid_from_idx ON gateway.prices (model, valid_from);

-- What a price was is on invoices: only its end may be moved, and never so that a past moment is priced anew.
CREATE FUNCTION gateway.guard_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.valid_from <= now() THEN
            RAISE EXCEPTION 'price % has begun and cannot be deleted; end it', OLD.version
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF to_jsonb(OLD) - 'valid_until' IS DISTINCT FROM to_jsonb(NEW) - 'valid_until' THEN
        RAISE EXCEPTION 'price %: only its end may change; add another price', OLD.version
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.valid_until IS DISTINCT FROM NEW.valid_until AND (OLD.valid_until <= now() OR NEW.valid_until < now()) THEN
        RAISE EXCEPTION 'price %: what has passed was billed and stays as it was', OLD.version
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER guard_price BEFORE UPDATE OR DELETE ON gateway.prices
    FOR EACH ROW EXECUTE FUNCTION gateway.guard_price();
"""

RECONCILIATION = """
CREATE TABLE gateway.engine_counts (
    replica_id text NOT NULL,
    sampled_at timestamptz NOT NULL,
    pool text NOT NULL,
    url text NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    continues boolean NOT NULL,
    CONSTRAINT engine_counts_pkey PRIMARY KEY (replica_id, sampled_at)
);
CREATE TABLE gateway.reconciliations (
    replica_id text NOT NULL,
    window_from timestamptz NOT NULL,
    window_until timestamptz NOT NULL,
    engine_prompt_tokens bigint NOT NULL,
    engine_completion_tokens bigint NOT NULL,
    ledger_prompt_tokens_min bigint NOT NULL,
    ledger_prompt_tokens_max bigint NOT NULL,
    ledger_completion_tokens_min bigint NOT NULL,
    ledger_completion_tokens_max bigint NOT NULL,
    uncertain_attempts bigint NOT NULL,
    prompt_drift bigint NOT NULL,
    completion_drift bigint NOT NULL,
    checked_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT reconciliations_pkey PRIMARY KEY (replica_id, window_from)
);
CREATE INDEX reconciliations_window_from_idx ON gateway.reconciliations (window_from);
"""

DOWN = """
DROP TABLE gateway.reconciliations, gateway.engine_counts, gateway.prices, gateway.usage_retired_days,
    gateway.usage_verifications, gateway.usage_roll_up_runs, gateway.usage_daily, gateway.usage_hourly;
DROP FUNCTION gateway.guard_price();
DROP TYPE gateway.text_range;

CREATE TEMPORARY TABLE usage_events_after ON COMMIT DROP AS SELECT * FROM gateway.usage_events;
DROP TABLE gateway.usage_events;
CREATE TABLE gateway.usage_events (
    request_id text NOT NULL,
    attempt smallint NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    endpoint text NOT NULL,
    pool text,
    replica_id text,
    stream boolean NOT NULL,
    prompt_tokens integer NOT NULL,
    cached_tokens integer NOT NULL,
    completion_tokens integer NOT NULL,
    reasoning_tokens integer NOT NULL,
    outcome text NOT NULL,
    finish text NOT NULL,
    billed boolean NOT NULL,
    status smallint,
    error_code text,
    phases_ms jsonb NOT NULL,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    gateway_id text NOT NULL,
    CONSTRAINT usage_events_pkey PRIMARY KEY (request_id, attempt),
    CONSTRAINT usage_events_outcome_check CHECK (outcome IN ('exact', 'lower_bound', 'unknown')),
    CONSTRAINT usage_events_finish_check
        CHECK (finish IN ('complete', 'client_gone', 'engine_error', 'not_placed', 'gateway_crash'))
);
INSERT INTO gateway.usage_events
SELECT request_id, attempt, organization_id, project_id, key_id, model, tier, endpoint, pool, replica_id, stream,
       prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, outcome, finish, billed, status, error_code,
       phases_ms, opened_at, closed_at, recorded_at, gateway_id
  FROM usage_events_after;
DROP TABLE usage_events_after;
CREATE UNIQUE INDEX usage_events_one_billed_attempt_idx ON gateway.usage_events (request_id) WHERE billed;
CREATE INDEX usage_events_organization_id_closed_at_idx ON gateway.usage_events (organization_id, closed_at);
CREATE INDEX usage_events_key_id_closed_at_idx ON gateway.usage_events (key_id, closed_at);
CREATE INDEX usage_events_closed_at_idx ON gateway.usage_events USING brin (closed_at);
CREATE INDEX usage_events_recorded_at_idx ON gateway.usage_events USING brin (recorded_at);

CREATE TABLE gateway.usage_hourly (
    hour timestamptz NOT NULL,
    organization_id uuid NOT NULL,
    project_id uuid NOT NULL,
    key_id uuid NOT NULL,
    model text NOT NULL,
    tier text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    computed_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT usage_hourly_pkey PRIMARY KEY (hour, organization_id, project_id, key_id, model, tier)
);
DROP FUNCTION gateway.ensure_usage_day(date), gateway.refuse_change(), gateway.usage_day_of(text),
    gateway.usage_first_id(timestamptz);
"""


def upgrade() -> None:
    for step in (FUNCTIONS, EVENTS, ROLL_UPS, PRICES, RECONCILIATION):
        op.execute(step)


def downgrade() -> None:
    op.execute(DOWN)
