"""The schema of release 0.1.0: databases of this and later releases are at this revision or a newer one.

Its statements never change. `storage/tables/` and the `tables.py` of the domains describe what each table holds.
"""

from __future__ import annotations

from alembic import op

revision = "0044"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE SCHEMA evals;
CREATE SCHEMA gateway;
CREATE TYPE gateway.text_range AS RANGE (subtype = text, collation = "C");

CREATE TABLE evals.model_versions (
    id uuid DEFAULT gen_random_uuid() NOT NULL, model text NOT NULL, pool text NOT NULL, engine_model text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT model_versions_model_pool_engine_model_key UNIQUE (model, pool, engine_model));

CREATE TABLE evals.runs (
    id uuid DEFAULT gen_random_uuid() NOT NULL, model text NOT NULL, pool text, arm text, model_version_id uuid,
    status text DEFAULT 'queued' NOT NULL, created_at timestamptz DEFAULT now() NOT NULL, started_at timestamptz,
    ended_at timestamptz, cancel_asked_at timestamptz, error text, lease_id uuid, lease_until timestamptz,
    first_seed bigint NOT NULL, night date,
    PRIMARY KEY (id),
    CONSTRAINT runs_arm_check CHECK (arm IN ('baseline', 'candidate')),
    CONSTRAINT runs_status_check CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    CONSTRAINT runs_model_version_id_fkey FOREIGN KEY (model_version_id) REFERENCES evals.model_versions (id));
CREATE INDEX runs_created_at_id_idx ON evals.runs (created_at, id);
CREATE UNIQUE INDEX runs_night_key ON evals.runs (model, night) WHERE night IS NOT NULL;

CREATE TABLE evals.comparisons (
    id uuid DEFAULT gen_random_uuid() NOT NULL, model text NOT NULL, baseline_run uuid NOT NULL,
    candidate_run uuid NOT NULL, status text DEFAULT 'queued' NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    started_at timestamptz, ended_at timestamptz, cancel_asked_at timestamptz, error text, lease_id uuid,
    lease_until timestamptz, rule jsonb NOT NULL, budget_items integer NOT NULL, decision text, verdict jsonb,
    release_id uuid,
    PRIMARY KEY (id),
    CONSTRAINT comparisons_budget_items_check CHECK (budget_items > 0),
    CONSTRAINT comparisons_decided_check CHECK ((status = 'done') = (decision IS NOT NULL)),
    CONSTRAINT comparisons_decision_check CHECK (decision IN ('pass', 'fail', 'inconclusive')),
    CONSTRAINT comparisons_status_check CHECK (status IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    CONSTRAINT comparisons_baseline_run_fkey FOREIGN KEY (baseline_run) REFERENCES evals.runs (id),
    CONSTRAINT comparisons_candidate_run_fkey FOREIGN KEY (candidate_run) REFERENCES evals.runs (id));
CREATE INDEX comparisons_created_at_id_idx ON evals.comparisons (created_at, id);
CREATE INDEX comparisons_release_id_idx ON evals.comparisons (release_id);

CREATE TABLE evals.items (
    run_id uuid NOT NULL, slice text NOT NULL, seed bigint NOT NULL, cluster text NOT NULL, answer text NOT NULL,
    score double precision NOT NULL, request_id text, latency_ms double precision NOT NULL, error_code text,
    answered_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (run_id, slice, seed),
    CONSTRAINT items_score_check CHECK (score >= 0 AND score <= 1),
    CONSTRAINT items_run_id_fkey FOREIGN KEY (run_id) REFERENCES evals.runs (id) ON DELETE CASCADE);

CREATE TABLE evals.slice_versions (
    id uuid DEFAULT gen_random_uuid() NOT NULL, slice text NOT NULL, version text NOT NULL, about text NOT NULL,
    goal double precision NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT slice_versions_slice_version_key UNIQUE (slice, version));

CREATE TABLE evals.run_slices (
    run_id uuid NOT NULL, slice text NOT NULL, slice_version_id uuid, items integer NOT NULL,
    forgotten_items integer DEFAULT 0 NOT NULL, forgotten_score double precision DEFAULT 0 NOT NULL,
    PRIMARY KEY (run_id, slice),
    CONSTRAINT run_slices_items_check CHECK (items > 0),
    CONSTRAINT run_slices_run_id_fkey FOREIGN KEY (run_id) REFERENCES evals.runs (id) ON DELETE CASCADE,
    CONSTRAINT run_slices_slice_version_id_fkey FOREIGN KEY (slice_version_id) REFERENCES evals.slice_versions (id));

CREATE TABLE gateway.organizations (
    id uuid DEFAULT gen_random_uuid() NOT NULL, name text NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    operator boolean DEFAULT false NOT NULL, disabled_at timestamptz, store_prompts boolean DEFAULT false NOT NULL,
    store_prompts_since timestamptz DEFAULT '-infinity' NOT NULL,
    internal boolean DEFAULT false NOT NULL,
    PRIMARY KEY (id));
CREATE INDEX organizations_created_at_id_idx ON gateway.organizations (created_at, id);
CREATE UNIQUE INDEX organizations_internal_key ON gateway.organizations (internal) WHERE internal;
CREATE INDEX organizations_name_idx ON gateway.organizations (name);
CREATE UNIQUE INDEX organizations_operator_key ON gateway.organizations (operator) WHERE operator;

CREATE TABLE gateway.projects (
    id uuid DEFAULT gen_random_uuid() NOT NULL, organization_id uuid NOT NULL, name text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL, models text[], tiers text[], disabled_at timestamptz,
    allow_reviews boolean DEFAULT false NOT NULL,
    allow_reviews_since timestamptz DEFAULT '-infinity' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT projects_organization_id_name_key UNIQUE (organization_id, name),
    CONSTRAINT projects_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id));
CREATE INDEX projects_organization_id_created_at_id_idx ON gateway.projects (organization_id, created_at, id);

CREATE TABLE gateway.adapters (
    id uuid DEFAULT gen_random_uuid() NOT NULL, organization_id uuid NOT NULL, project_id uuid, model text NOT NULL,
    name text NOT NULL, path text NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT adapters_organization_id_project_id_model_name_key
        UNIQUE NULLS NOT DISTINCT (organization_id, project_id, model, name),
    CONSTRAINT adapters_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id),
    CONSTRAINT adapters_project_id_fkey FOREIGN KEY (project_id) REFERENCES gateway.projects (id));
CREATE INDEX adapters_organization_id_created_at_id_idx ON gateway.adapters (organization_id, created_at, id);

CREATE TABLE gateway.principals (
    id uuid DEFAULT gen_random_uuid() NOT NULL, organization_id uuid NOT NULL, kind text NOT NULL, email text,
    name text NOT NULL, role text NOT NULL, created_at timestamptz DEFAULT now() NOT NULL, disabled_at timestamptz,
    PRIMARY KEY (id),
    CONSTRAINT principals_email_check CHECK ((kind = 'member') = (email IS NOT NULL)),
    CONSTRAINT principals_kind_check CHECK (kind IN ('member', 'service_account')),
    CONSTRAINT principals_role_check CHECK (role IN ('owner', 'admin', 'developer', 'viewer', 'billing')),
    CONSTRAINT principals_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id));
CREATE UNIQUE INDEX principals_email_key ON gateway.principals (organization_id, lower(email)) WHERE kind = 'member';
CREATE INDEX principals_member_email_idx ON gateway.principals (lower(email)) WHERE kind = 'member';
CREATE UNIQUE INDEX principals_name_key ON gateway.principals (organization_id, name) WHERE kind = 'service_account';
CREATE INDEX principals_organization_id_created_at_id_idx ON gateway.principals (organization_id, created_at, id);

CREATE TABLE gateway.admin_keys (
    id uuid DEFAULT gen_random_uuid() NOT NULL, principal_id uuid NOT NULL, name text NOT NULL, hash bytea NOT NULL,
    display text NOT NULL, previous_hash bytea, previous_expires_at timestamptz,
    created_at timestamptz DEFAULT now() NOT NULL, expires_at timestamptz, revoked_at timestamptz,
    last_used_at timestamptz,
    PRIMARY KEY (id),
    CONSTRAINT admin_keys_hash_key UNIQUE (hash),
    CONSTRAINT admin_keys_previous_hash_key UNIQUE (previous_hash),
    CONSTRAINT admin_keys_hash_check CHECK (octet_length(hash) = 32),
    CONSTRAINT admin_keys_previous_check CHECK ((previous_hash IS NULL) = (previous_expires_at IS NULL)),
    CONSTRAINT admin_keys_previous_hash_check CHECK (octet_length(previous_hash) = 32),
    CONSTRAINT admin_keys_principal_id_fkey
        FOREIGN KEY (principal_id) REFERENCES gateway.principals (id) ON DELETE CASCADE);
CREATE INDEX admin_keys_principal_id_idx ON gateway.admin_keys (principal_id);

CREATE TABLE gateway.api_keys (
    id uuid DEFAULT gen_random_uuid() NOT NULL, project_id uuid NOT NULL, name text NOT NULL, hash bytea NOT NULL,
    display text NOT NULL, created_at timestamptz DEFAULT now() NOT NULL, expires_at timestamptz,
    revoked_at timestamptz, last_used_at timestamptz, scopes text[], previous_hash bytea,
    previous_expires_at timestamptz,
    PRIMARY KEY (id),
    CONSTRAINT api_keys_hash_key UNIQUE (hash),
    CONSTRAINT api_keys_previous_hash_key UNIQUE (previous_hash),
    CONSTRAINT api_keys_hash_check CHECK (octet_length(hash) = 32),
    CONSTRAINT api_keys_previous_check CHECK ((previous_hash IS NULL) = (previous_expires_at IS NULL)),
    CONSTRAINT api_keys_previous_hash_check CHECK (octet_length(previous_hash) = 32),
    CONSTRAINT api_keys_project_id_fkey FOREIGN KEY (project_id) REFERENCES gateway.projects (id));
CREATE INDEX api_keys_project_id_created_at_id_idx ON gateway.api_keys (project_id, created_at, id);
CREATE INDEX api_keys_project_id_idx ON gateway.api_keys (project_id);

CREATE TABLE gateway.audit_log (
    id bigint NOT NULL, at timestamptz NOT NULL, actor_kind text NOT NULL, actor_id uuid, actor_name text NOT NULL,
    admin_key_id uuid, request_id text, organization_id uuid, action text NOT NULL, subject_kind text NOT NULL,
    subject_id text NOT NULL, before jsonb, after jsonb, previous_hash bytea NOT NULL, hash bytea NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT audit_log_actor_kind_check CHECK (actor_kind IN ('member', 'service_account', 'command', 'system')));
CREATE INDEX audit_log_organization_id_id_idx ON gateway.audit_log (organization_id, id);
CREATE INDEX audit_log_subject_id_id_idx ON gateway.audit_log (subject_id, id);

CREATE TABLE gateway.budget_crossings (
    level text NOT NULL, subject_id uuid NOT NULL, tier text NOT NULL, month text NOT NULL, percent bigint NOT NULL,
    organization_id uuid NOT NULL, limit_micro bigint NOT NULL, spent_micro bigint NOT NULL,
    crossed_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (level, subject_id, tier, month, percent, limit_micro));
CREATE INDEX budget_crossings_organization_id_crossed_at_idx ON gateway.budget_crossings
    (organization_id, crossed_at);

CREATE TABLE gateway.changes (
    id uuid DEFAULT gen_random_uuid() NOT NULL, name text NOT NULL, made_at timestamptz NOT NULL,
    metric text NOT NULL, statistic text NOT NULL, tier text, model text, expected_ms double precision NOT NULL,
    window_s integer NOT NULL, before_ms double precision, before_requests integer, after_ms double precision,
    after_requests integer, measured_at timestamptz, created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT changes_measured_at_check
        CHECK ((measured_at IS NULL) = (before_ms IS NULL) AND (measured_at IS NULL) = (after_ms IS NULL)),
    CONSTRAINT changes_metric_check CHECK (metric IN ('ttft', 'tpot', 'longest_gap')),
    CONSTRAINT changes_statistic_check CHECK (statistic IN ('p50', 'p95', 'p99')),
    CONSTRAINT changes_tier_check CHECK (tier IN ('autocomplete', 'chat')),
    CONSTRAINT changes_window_s_check CHECK (window_s > 0));
CREATE INDEX changes_made_at_id_idx ON gateway.changes (made_at, id);

CREATE TABLE gateway.completion_days (
    organization_id uuid NOT NULL, day date NOT NULL, language text NOT NULL, client text NOT NULL,
    model text NOT NULL, completions bigint NOT NULL, empty bigint NOT NULL, abandoned bigint NOT NULL,
    superseded bigint NOT NULL, shown bigint NOT NULL, accepted bigint NOT NULL, dismissed bigint NOT NULL,
    characters_offered bigint NOT NULL, characters_kept bigint NOT NULL, buckets smallint[] NOT NULL,
    counts bigint[] NOT NULL,
    PRIMARY KEY (organization_id, day, language, client, model));
CREATE INDEX completion_days_day_organization_id_idx ON gateway.completion_days (day, organization_id);

CREATE TABLE gateway.completion_due_hours (
    hour timestamptz NOT NULL, organization_id uuid NOT NULL, since timestamptz NOT NULL,
    PRIMARY KEY (hour, organization_id));

CREATE TABLE gateway.completion_events (
    request_id text COLLATE "C" NOT NULL, project_id uuid NOT NULL, choice_index smallint NOT NULL,
    view_id text NOT NULL, type text NOT NULL, organization_id uuid NOT NULL, characters integer, elapsed_ms integer,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (request_id, project_id, choice_index, view_id, type),
    CONSTRAINT completion_events_characters_check CHECK (characters >= 0),
    CONSTRAINT completion_events_elapsed_ms_check CHECK (elapsed_ms >= 0),
    CONSTRAINT completion_events_type_check CHECK (type IN ('view', 'select', 'select_part', 'dismiss')));
CREATE INDEX completion_events_organization_id_request_id_idx ON gateway.completion_events
    (organization_id, request_id);
CREATE INDEX completion_events_recorded_at_idx ON gateway.completion_events USING brin (recorded_at);

CREATE TABLE gateway.completion_hours (
    organization_id uuid NOT NULL, project_id uuid NOT NULL, hour timestamptz NOT NULL, language text NOT NULL,
    client text NOT NULL, model text NOT NULL, completions bigint NOT NULL, empty bigint NOT NULL,
    abandoned bigint NOT NULL, superseded bigint NOT NULL, shown bigint NOT NULL, accepted bigint NOT NULL,
    dismissed bigint NOT NULL, characters_offered bigint NOT NULL, characters_kept bigint NOT NULL,
    buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (organization_id, project_id, hour, language, client, model));
CREATE INDEX completion_hours_hour_organization_id_idx ON gateway.completion_hours (hour, organization_id);

CREATE TABLE gateway.completion_roll_up_runs (
    started_at timestamptz NOT NULL, seconds double precision NOT NULL, hours integer NOT NULL,
    PRIMARY KEY (started_at));

CREATE TABLE gateway.completion_texts (
    request_id text COLLATE "C" NOT NULL, project_id uuid NOT NULL, organization_id uuid NOT NULL,
    prefix text NOT NULL, suffix text NOT NULL, completion text, recorded_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (request_id));
CREATE INDEX completion_texts_organization_id_request_id_idx ON gateway.completion_texts
    (organization_id, request_id);
CREATE INDEX completion_texts_recorded_at_idx ON gateway.completion_texts USING brin (recorded_at);

CREATE TABLE gateway.console_accounts (
    id uuid DEFAULT gen_random_uuid() NOT NULL, principal_id uuid NOT NULL, password_hash text, totp_secret bytea,
    totp_confirmed_at timestamptz, totp_last_step bigint, recovery_hashes bytea[] DEFAULT '{}'::bytea[] NOT NULL,
    oidc_issuer text, oidc_subject text, created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT console_accounts_principal_id_key UNIQUE (principal_id),
    CONSTRAINT console_accounts_oidc_check CHECK ((oidc_issuer IS NULL) = (oidc_subject IS NULL)),
    CONSTRAINT console_accounts_totp_check CHECK (totp_confirmed_at IS NULL OR totp_secret IS NOT NULL),
    CONSTRAINT console_accounts_principal_id_fkey
        FOREIGN KEY (principal_id) REFERENCES gateway.principals (id) ON DELETE CASCADE);
CREATE INDEX console_accounts_oidc_issuer_oidc_subject_idx ON gateway.console_accounts (oidc_issuer, oidc_subject);

CREATE TABLE gateway.console_attempts (
    subject bytea NOT NULL, failures integer NOT NULL, last_at timestamptz NOT NULL,
    locked_until timestamptz NOT NULL,
    PRIMARY KEY (subject));
CREATE INDEX console_attempts_last_at_idx ON gateway.console_attempts (last_at);

CREATE TABLE gateway.console_links (
    id uuid DEFAULT gen_random_uuid() NOT NULL, hash bytea NOT NULL, kind text NOT NULL, principal_id uuid,
    created_at timestamptz DEFAULT now() NOT NULL, expires_at timestamptz NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT console_links_hash_key UNIQUE (hash),
    CONSTRAINT console_links_hash_check CHECK (octet_length(hash) = 32),
    CONSTRAINT console_links_kind_check CHECK (kind IN ('first', 'invitation', 'reset')),
    CONSTRAINT console_links_principal_check CHECK ((kind = 'first') = (principal_id IS NULL)),
    CONSTRAINT console_links_principal_id_fkey
        FOREIGN KEY (principal_id) REFERENCES gateway.principals (id) ON DELETE CASCADE);
CREATE INDEX console_links_expires_at_idx ON gateway.console_links (expires_at);
CREATE INDEX console_links_principal_id_idx ON gateway.console_links (principal_id);

CREATE TABLE gateway.console_sessions (
    id uuid DEFAULT gen_random_uuid() NOT NULL, account_id uuid NOT NULL, token_hash bytea NOT NULL,
    method text NOT NULL, network text NOT NULL, user_agent text NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL, last_seen_at timestamptz DEFAULT now() NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT console_sessions_token_hash_key UNIQUE (token_hash),
    CONSTRAINT console_sessions_method_check CHECK (method IN ('password', 'oidc', 'link')),
    CONSTRAINT console_sessions_token_hash_check CHECK (octet_length(token_hash) = 32),
    CONSTRAINT console_sessions_account_id_fkey
        FOREIGN KEY (account_id) REFERENCES gateway.console_accounts (id) ON DELETE CASCADE);
CREATE INDEX console_sessions_account_id_idx ON gateway.console_sessions (account_id);
CREATE INDEX console_sessions_expires_at_idx ON gateway.console_sessions (expires_at);

CREATE TABLE gateway.desired_states (
    version bigint NOT NULL, document jsonb NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    settings_digest text, action text, actor text,
    PRIMARY KEY (version),
    CONSTRAINT desired_states_version_check CHECK (version > 0));

CREATE TABLE gateway.detailed_completion_days (
    organization_id uuid NOT NULL, project_id uuid NOT NULL, day date NOT NULL, language text NOT NULL,
    client text NOT NULL, model text NOT NULL, completions bigint NOT NULL, empty bigint NOT NULL,
    abandoned bigint NOT NULL, superseded bigint NOT NULL, shown bigint NOT NULL, accepted bigint NOT NULL,
    dismissed bigint NOT NULL, characters_offered bigint NOT NULL, characters_kept bigint NOT NULL,
    buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (organization_id, project_id, day, language, client, model));
CREATE INDEX detailed_completion_days_day_organization_id_idx ON gateway.detailed_completion_days
    (day, organization_id);

CREATE TABLE gateway.engine_counts (
    replica_id text NOT NULL, sampled_at timestamptz NOT NULL, pool text NOT NULL, url text NOT NULL,
    prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL, completion_tokens bigint NOT NULL,
    continues boolean NOT NULL, queue_s double precision, prefill_s double precision, requests bigint,
    retractions bigint,
    PRIMARY KEY (replica_id, sampled_at),
    CONSTRAINT engine_counts_stages_check
        CHECK (num_nulls(queue_s, prefill_s, requests, retractions) = ANY (ARRAY[0, 4])));

CREATE TABLE gateway.fleet_gateways (
    instance text NOT NULL, settings_digest text, version bigint DEFAULT 0 NOT NULL, refused_version bigint,
    refusal text, seen_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (instance),
    CONSTRAINT fleet_gateways_refusal_check CHECK ((refused_version IS NULL) = (refusal IS NULL)));

CREATE TABLE gateway.idempotency_keys (
    principal_id uuid NOT NULL, key text NOT NULL, fingerprint bytea NOT NULL, run_id uuid NOT NULL,
    started_at timestamptz DEFAULT now() NOT NULL, status smallint, answer bytea,
    PRIMARY KEY (principal_id, key));
CREATE INDEX idempotency_keys_started_at_idx ON gateway.idempotency_keys (started_at);

CREATE TABLE gateway.invoice_closings (
    until timestamptz NOT NULL,
    PRIMARY KEY (until));

CREATE TABLE gateway.invoice_days (
    day date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, key_id uuid NOT NULL,
    model text NOT NULL, tier text NOT NULL, price_version bigint NOT NULL, requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL, amount_micro bigint NOT NULL,
    uncached_tokens bigint NOT NULL, charged_cached_tokens bigint NOT NULL,
    charged_cache_write_tokens bigint NOT NULL,
    PRIMARY KEY (day, organization_id, project_id, key_id, model, tier, price_version));

CREATE TABLE gateway.invoice_months (
    month date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, key_id uuid NOT NULL,
    model text NOT NULL, tier text NOT NULL, price_version bigint NOT NULL, requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL, amount_micro bigint NOT NULL,
    uncached_tokens bigint NOT NULL, charged_cached_tokens bigint NOT NULL,
    charged_cache_write_tokens bigint NOT NULL,
    PRIMARY KEY (month, organization_id, project_id, key_id, model, tier, price_version));
CREATE INDEX invoice_months_organization_id_month_idx ON gateway.invoice_months (organization_id, month);

CREATE TABLE gateway.latency_hours (
    at timestamptz NOT NULL, tier text NOT NULL, model text NOT NULL, pool text NOT NULL, measure text NOT NULL,
    buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (at, tier, model, pool, measure));

CREATE TABLE gateway.latency_minutes (
    at timestamptz NOT NULL, tier text NOT NULL, model text NOT NULL, pool text NOT NULL, measure text NOT NULL,
    buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (at, tier, model, pool, measure));

CREATE TABLE gateway.limit_gateways (
    instance text NOT NULL, epoch text NOT NULL, joined_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (instance));

CREATE TABLE gateway.limits (
    level text NOT NULL, subject_id uuid NOT NULL, tier text, requests_per_minute bigint,
    input_tokens_per_minute bigint, output_tokens_per_minute bigint, tokens_per_minute bigint, max_concurrency bigint,
    tokens_per_day bigint, money_micro_per_month bigint, updated_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT limits_subject_id_level_tier_key UNIQUE NULLS NOT DISTINCT (subject_id, level, tier),
    CONSTRAINT limits_input_tokens_per_minute_check CHECK (input_tokens_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_level_check CHECK (level IN ('organization', 'project', 'key')),
    CONSTRAINT limits_max_concurrency_check CHECK (max_concurrency BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_money_micro_per_month_check
        CHECK (money_micro_per_month >= 0 AND money_micro_per_month <= '90000000000000'::bigint),
    CONSTRAINT limits_output_tokens_per_minute_check CHECK (output_tokens_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_requests_per_minute_check CHECK (requests_per_minute BETWEEN 1 AND 1000000000),
    CONSTRAINT limits_tier_check CHECK (tier IN ('autocomplete', 'chat')),
    CONSTRAINT limits_tokens_per_day_check CHECK (tokens_per_day >= 1 AND tokens_per_day <= '1000000000000'::bigint),
    CONSTRAINT limits_tokens_per_minute_check CHECK (tokens_per_minute BETWEEN 1 AND 1000000000));

CREATE TABLE gateway.organization_usage_daily (
    day date NOT NULL, organization_id uuid NOT NULL, model text NOT NULL, tier text NOT NULL,
    requests bigint NOT NULL, prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL, completion_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL,
    amount_micro bigint NOT NULL, draft_tokens bigint DEFAULT 0 NOT NULL,
    accepted_draft_tokens bigint DEFAULT 0 NOT NULL, computed_at timestamptz DEFAULT now() NOT NULL,
    adapter text DEFAULT '' NOT NULL,
    PRIMARY KEY (day, organization_id, model, tier, adapter));
CREATE INDEX organization_usage_daily_organization_id_day_idx ON gateway.organization_usage_daily
    (organization_id, day);

CREATE TABLE gateway.organization_usage_hourly (
    hour timestamptz NOT NULL, organization_id uuid NOT NULL, model text NOT NULL, tier text NOT NULL,
    requests bigint NOT NULL, prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL, completion_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL,
    amount_micro bigint NOT NULL, draft_tokens bigint DEFAULT 0 NOT NULL,
    accepted_draft_tokens bigint DEFAULT 0 NOT NULL, computed_at timestamptz DEFAULT now() NOT NULL,
    adapter text DEFAULT '' NOT NULL,
    PRIMARY KEY (hour, organization_id, model, tier, adapter));
CREATE INDEX organization_usage_hourly_organization_id_hour_idx ON gateway.organization_usage_hourly
    (organization_id, hour);

CREATE TABLE gateway.prefix_drops (
    id uuid DEFAULT gen_random_uuid() NOT NULL, organization_id uuid NOT NULL,
    began_at timestamptz DEFAULT now() NOT NULL, ended_at timestamptz, usual_share double precision NOT NULL,
    share double precision NOT NULL, template text, model text, cause text, part text, part_number smallint,
    differing_token integer,
    PRIMARY KEY (id));
CREATE UNIQUE INDEX prefix_drops_open_key ON gateway.prefix_drops (organization_id) WHERE ended_at IS NULL;
CREATE INDEX prefix_drops_organization_id_began_at_idx ON gateway.prefix_drops (organization_id, began_at);

CREATE TABLE gateway.prefix_samples (
    request_id text COLLATE "C" NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL,
    model text NOT NULL, tier text NOT NULL, endpoint text NOT NULL, template text NOT NULL, session_id text NOT NULL,
    turn integer NOT NULL, prompt_tokens integer NOT NULL, reusable_tokens integer NOT NULL, differing_token integer,
    part text, part_number integer, cause text NOT NULL, blocks bigint[] NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (request_id));
CREATE INDEX prefix_samples_organization_id_request_id_idx ON gateway.prefix_samples (organization_id, request_id);
CREATE INDEX prefix_samples_recorded_at_idx ON gateway.prefix_samples USING brin (recorded_at);
CREATE INDEX prefix_samples_sample_0040_idx ON gateway.prefix_samples
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '0040');
CREATE INDEX prefix_samples_sample_0100_idx ON gateway.prefix_samples
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '0100');
CREATE INDEX prefix_samples_sample_0400_idx ON gateway.prefix_samples
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '0400');
CREATE INDEX prefix_samples_sample_1000_idx ON gateway.prefix_samples
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '1000');
CREATE STATISTICS gateway.prefix_samples_sample_stat ON "right"(request_id, 4) FROM gateway.prefix_samples;

CREATE TABLE gateway.prefix_shares (
    organization_id uuid NOT NULL, hour timestamptz NOT NULL, model text NOT NULL, endpoint text NOT NULL,
    template text NOT NULL, cause text NOT NULL, part text NOT NULL, requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL, reusable_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
    differing_token integer,
    PRIMARY KEY (organization_id, hour, model, endpoint, template, cause, part));

CREATE TABLE gateway.prefix_texts (
    request_id text COLLATE "C" NOT NULL, project_id uuid NOT NULL, organization_id uuid NOT NULL,
    template text NOT NULL, cause text NOT NULL, part text, part_number integer, earlier text, later text NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (request_id));
CREATE INDEX prefix_texts_organization_id_request_id_idx ON gateway.prefix_texts (organization_id, request_id);
CREATE INDEX prefix_texts_recorded_at_idx ON gateway.prefix_texts USING brin (recorded_at);

CREATE TABLE gateway.prices (
    version bigint GENERATED ALWAYS AS IDENTITY, model text NOT NULL, valid_from timestamptz NOT NULL,
    valid_until timestamptz, input_micro bigint NOT NULL, cached_input_micro bigint NOT NULL,
    cache_write_micro bigint NOT NULL, output_micro bigint NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    ended_by_next boolean DEFAULT false NOT NULL,
    PRIMARY KEY (version),
    CONSTRAINT prices_cache_write_micro_check
        CHECK (cache_write_micro >= 0 AND cache_write_micro <= '1000000000000'::bigint),
    CONSTRAINT prices_cached_input_micro_check
        CHECK (cached_input_micro >= 0 AND cached_input_micro <= '1000000000000'::bigint),
    CONSTRAINT prices_input_micro_check CHECK (input_micro >= 0 AND input_micro <= '1000000000000'::bigint),
    CONSTRAINT prices_output_micro_check CHECK (output_micro >= 0 AND output_micro <= '1000000000000'::bigint),
    CONSTRAINT prices_valid_until_check CHECK (valid_until > valid_from),
    CONSTRAINT prices_one_at_a_time
        EXCLUDE USING gist (gateway.text_range(model, model, '[]') WITH &&, tstzrange(valid_from, valid_until) WITH
            &&));
CREATE INDEX prices_model_valid_from_idx ON gateway.prices (model, valid_from);

CREATE TABLE gateway.priorities (
    level text NOT NULL, subject_id uuid NOT NULL, tier text, service_class text, share integer,
    updated_at timestamptz DEFAULT now() NOT NULL,
    CONSTRAINT priorities_subject_id_level_tier_key UNIQUE NULLS NOT DISTINCT (subject_id, level, tier),
    CONSTRAINT priorities_key_share_check CHECK (level <> 'key' OR share IS NULL),
    CONSTRAINT priorities_level_check CHECK (level IN ('organization', 'project', 'key')),
    CONSTRAINT priorities_said_check CHECK (service_class IS NOT NULL OR share IS NOT NULL),
    CONSTRAINT priorities_service_class_check CHECK (service_class IN ('offline', 'standard', 'interactive')),
    CONSTRAINT priorities_share_check CHECK (share BETWEEN 1 AND 10000),
    CONSTRAINT priorities_tier_check CHECK (tier IN ('autocomplete', 'chat')));

CREATE TABLE gateway.project_completion_days (
    organization_id uuid NOT NULL, project_id uuid NOT NULL, day date NOT NULL, completions bigint NOT NULL,
    empty bigint NOT NULL, abandoned bigint NOT NULL, superseded bigint NOT NULL, shown bigint NOT NULL,
    accepted bigint NOT NULL, dismissed bigint NOT NULL, characters_offered bigint NOT NULL,
    characters_kept bigint NOT NULL, buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (organization_id, project_id, day));
CREATE INDEX project_completion_days_day_organization_id_idx ON gateway.project_completion_days
    (day, organization_id);

CREATE TABLE gateway.project_completion_weeks (
    organization_id uuid NOT NULL, project_id uuid NOT NULL, week date NOT NULL, completions bigint NOT NULL,
    empty bigint NOT NULL, abandoned bigint NOT NULL, superseded bigint NOT NULL, shown bigint NOT NULL,
    accepted bigint NOT NULL, dismissed bigint NOT NULL, characters_offered bigint NOT NULL,
    characters_kept bigint NOT NULL, buckets smallint[] NOT NULL, counts bigint[] NOT NULL,
    PRIMARY KEY (organization_id, project_id, week));
CREATE INDEX project_completion_weeks_week_organization_id_idx ON gateway.project_completion_weeks
    (week, organization_id);

CREATE TABLE gateway.project_usage_daily (
    day date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, model text NOT NULL,
    tier text NOT NULL, requests bigint NOT NULL, prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL, completion_tokens bigint NOT NULL, reasoning_tokens bigint NOT NULL,
    amount_micro bigint NOT NULL, draft_tokens bigint DEFAULT 0 NOT NULL,
    accepted_draft_tokens bigint DEFAULT 0 NOT NULL, computed_at timestamptz DEFAULT now() NOT NULL,
    adapter text DEFAULT '' NOT NULL,
    PRIMARY KEY (day, organization_id, project_id, model, tier, adapter));
CREATE INDEX project_usage_daily_organization_id_day_idx ON gateway.project_usage_daily (organization_id, day);
CREATE INDEX project_usage_daily_project_id_day_idx ON gateway.project_usage_daily (project_id, day);

CREATE TABLE gateway.reconciliations (
    replica_id text NOT NULL, window_from timestamptz NOT NULL, window_until timestamptz NOT NULL,
    engine_prompt_tokens bigint NOT NULL, engine_completion_tokens bigint NOT NULL,
    ledger_prompt_tokens_min bigint NOT NULL, ledger_prompt_tokens_max bigint NOT NULL,
    ledger_completion_tokens_min bigint NOT NULL, ledger_completion_tokens_max bigint NOT NULL,
    uncertain_attempts bigint NOT NULL, prompt_drift bigint NOT NULL, completion_drift bigint NOT NULL,
    checked_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (replica_id, window_from));
CREATE INDEX reconciliations_window_from_idx ON gateway.reconciliations (window_from);

CREATE TABLE gateway.refused_key_hours (
    at timestamptz NOT NULL, organization_id uuid NOT NULL, tier text NOT NULL, key_id uuid NOT NULL,
    requests bigint NOT NULL,
    PRIMARY KEY (at, organization_id, tier, key_id));

CREATE TABLE gateway.releases (
    id uuid DEFAULT gen_random_uuid() NOT NULL, created_at timestamptz DEFAULT now() NOT NULL, model text NOT NULL,
    candidate_pool text NOT NULL, engine_model text, baseline_pool text NOT NULL, control_pool text NOT NULL,
    stages double precision[] NOT NULL, shadow_share double precision NOT NULL, shadow_least integer NOT NULL,
    slices text[] NOT NULL, margins text NOT NULL, policy text, thresholds text, state text NOT NULL,
    stage integer NOT NULL, stage_began_at timestamptz DEFAULT now() NOT NULL, ended_at timestamptz,
    step integer NOT NULL, reason text NOT NULL, told text DEFAULT '' NOT NULL, watermark bigint, comparison_id uuid,
    desired_version bigint, more_units integer DEFAULT 0 NOT NULL, organization_share double precision,
    slice_rule text DEFAULT '{}' NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT releases_ended_at_check CHECK ((ended_at IS NOT NULL) = (state IN ('promoted', 'rolled_back'))),
    CONSTRAINT releases_policy_check CHECK (state = 'waiting' OR state = 'rolled_back' OR policy IS NOT NULL),
    CONSTRAINT releases_stage_check CHECK (stage >= 0 AND stage < cardinality(stages)),
    CONSTRAINT releases_state_check CHECK (state IN ('waiting', 'running', 'held', 'promoted', 'rolled_back')));
CREATE INDEX releases_created_at_id_idx ON gateway.releases (created_at, id);
CREATE UNIQUE INDEX releases_model_key ON gateway.releases (model) WHERE ended_at IS NULL;

CREATE TABLE gateway.release_steps (
    release_id uuid NOT NULL, step integer NOT NULL, at timestamptz DEFAULT now() NOT NULL, event text NOT NULL,
    stage integer NOT NULL, to_stage integer NOT NULL, state text NOT NULL, actor text NOT NULL, reason text NOT NULL,
    evidence bytea, requests integer DEFAULT 0 NOT NULL, sampled double precision DEFAULT 1 NOT NULL, verdict text,
    desired_version bigint, more_units integer DEFAULT 0 NOT NULL,
    PRIMARY KEY (release_id, step),
    CONSTRAINT release_steps_event_check
        CHECK (event IN ('start', 'begin', 'observe', 'advance', 'fail', 'undecided', 'hold', 'resume', 'promote',
            'roll_back', 'lost')),
    CONSTRAINT release_steps_state_check CHECK (state IN ('waiting', 'running', 'held', 'promoted', 'rolled_back')),
    CONSTRAINT release_steps_release_id_fkey
        FOREIGN KEY (release_id) REFERENCES gateway.releases (id) ON DELETE CASCADE);

CREATE TABLE gateway.request_error_hours (
    at timestamptz NOT NULL, organization_id uuid NOT NULL, tier text NOT NULL, error_code text NOT NULL,
    rule text NOT NULL, requests bigint NOT NULL,
    PRIMARY KEY (at, organization_id, tier, error_code, rule));

CREATE TABLE gateway.request_hours (
    at timestamptz NOT NULL, organization_id uuid NOT NULL, tier text NOT NULL, requests bigint NOT NULL,
    retried bigint NOT NULL, answered bigint NOT NULL, squares bigint NOT NULL,
    PRIMARY KEY (at, organization_id, tier));

CREATE TABLE gateway.request_traces (
    request_id text NOT NULL, organization_id uuid NOT NULL, client_request_id text, status smallint NOT NULL,
    error_code text, total_ms double precision NOT NULL, phases_ms jsonb NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL, project_id uuid, key_id uuid, endpoint text, model text,
    tier text, reason text, rule jsonb, counters jsonb, client text, language text, characters integer,
    served_from text, pool text, replica_id text, canary boolean, stream boolean, attempts smallint,
    prompt_tokens integer, cached_tokens integer, completion_tokens integer, ttft_ms double precision,
    tpot_ms double precision, itl_max_ms double precision, gaps_over_100ms integer, client_stall_ms double precision,
    engine_queue_ms double precision, engine_prefill_ms double precision, retractions smallint, trace_id text,
    side text, release text, unit bigint, transaction_id bigint DEFAULT pg_current_xact_id()::text::bigint,
    over_share boolean, service_class text, engine_grammar_ms double precision,
    PRIMARY KEY (request_id));
CREATE INDEX request_traces_organization_id_request_id_idx ON gateway.request_traces (organization_id, request_id);
CREATE INDEX request_traces_recorded_at_idx ON gateway.request_traces USING brin (recorded_at);
CREATE INDEX request_traces_release_transaction_id_idx ON gateway.request_traces
    (release, transaction_id) WHERE release IS NOT NULL;
CREATE INDEX request_traces_sample_0040_idx ON gateway.request_traces
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '0040');
CREATE INDEX request_traces_sample_0100_idx ON gateway.request_traces
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '0100');
CREATE INDEX request_traces_sample_0400_idx ON gateway.request_traces
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '0400');
CREATE INDEX request_traces_sample_1000_idx ON gateway.request_traces
    (request_id, organization_id) WHERE ("right"(request_id, 4) < '1000');
CREATE STATISTICS gateway.request_traces_sample_stat ON "right"(request_id, 4) FROM gateway.request_traces;

CREATE TABLE gateway.review_coins (
    release text NOT NULL, unit bigint NOT NULL, worse boolean NOT NULL,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (release, unit));
CREATE INDEX review_coins_recorded_at_idx ON gateway.review_coins USING brin (recorded_at);

CREATE TABLE gateway.reviews (
    id uuid DEFAULT gen_random_uuid() NOT NULL, model text NOT NULL, release text NOT NULL, unit bigint NOT NULL,
    candidate_left boolean NOT NULL, project_id uuid, prompt text, baseline text, candidate text,
    recorded_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT reviews_texts_check CHECK (num_nulls(project_id, prompt, baseline, candidate) = ANY (ARRAY[0, 4])));
CREATE INDEX reviews_project_id_idx ON gateway.reviews (project_id);
CREATE INDEX reviews_recorded_at_id_idx ON gateway.reviews (recorded_at, id);

CREATE TABLE gateway.review_votes (
    review_id uuid NOT NULL, reviewer text NOT NULL, choice text NOT NULL,
    voted_at timestamptz DEFAULT clock_timestamp() NOT NULL,
    PRIMARY KEY (review_id, reviewer),
    CONSTRAINT review_votes_choice_check CHECK (choice IN ('left', 'right', 'both', 'neither', 'skip')),
    CONSTRAINT review_votes_review_id_fkey FOREIGN KEY (review_id) REFERENCES gateway.reviews (id) ON DELETE CASCADE);

CREATE TABLE gateway.serving_hours (
    at timestamptz NOT NULL, tier text NOT NULL, length text NOT NULL, model text NOT NULL, pool text NOT NULL,
    side text NOT NULL, requests bigint NOT NULL, counted bigint NOT NULL, failed bigint NOT NULL,
    shed bigint NOT NULL, limited bigint NOT NULL, abandoned bigint NOT NULL, superseded bigint NOT NULL,
    good bigint NOT NULL, ttft_kept bigint NOT NULL, tpot_kept bigint NOT NULL, gap_kept bigint NOT NULL,
    prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL, completion_tokens bigint NOT NULL,
    good_tokens bigint NOT NULL, over_share bigint NOT NULL,
    PRIMARY KEY (at, tier, length, model, pool, side));

CREATE TABLE gateway.serving_minutes (
    at timestamptz NOT NULL, tier text NOT NULL, length text NOT NULL, model text NOT NULL, pool text NOT NULL,
    side text NOT NULL, requests bigint NOT NULL, counted bigint NOT NULL, failed bigint NOT NULL,
    shed bigint NOT NULL, limited bigint NOT NULL, abandoned bigint NOT NULL, superseded bigint NOT NULL,
    good bigint NOT NULL, ttft_kept bigint NOT NULL, tpot_kept bigint NOT NULL, gap_kept bigint NOT NULL,
    prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL, completion_tokens bigint NOT NULL,
    good_tokens bigint NOT NULL, over_share bigint NOT NULL,
    PRIMARY KEY (at, tier, length, model, pool, side));

CREATE TABLE gateway.shadow_pairs (
    id text COLLATE "C" NOT NULL, model text NOT NULL, release text NOT NULL, baseline_pool text NOT NULL,
    candidate_pool text NOT NULL, unit bigint NOT NULL, prompt_tokens integer NOT NULL, greedy boolean NOT NULL,
    outcome text NOT NULL, error_code text, same_text boolean, first_difference integer, baseline_characters integer,
    candidate_characters integer, baseline_finish text, candidate_finish text, baseline_json_valid boolean,
    candidate_json_valid boolean, same_tool_calls boolean, baseline_refused boolean, candidate_refused boolean,
    baseline_ttft_ms double precision, candidate_ttft_ms double precision, baseline_tokens_per_s double precision,
    candidate_tokens_per_s double precision, baseline_cached_tokens integer, candidate_cached_tokens integer,
    baseline_completion_tokens integer, candidate_completion_tokens integer,
    recorded_at timestamptz DEFAULT now() NOT NULL, baseline_error_code text,
    transaction_id bigint DEFAULT pg_current_xact_id()::text::bigint NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT shadow_pairs_compared_check CHECK ((outcome = 'compared') = (same_text IS NOT NULL)),
    CONSTRAINT shadow_pairs_outcome_check
        CHECK (outcome IN ('compared', 'failed', 'late', 'long', 'answered', 'superseded')));
CREATE INDEX shadow_pairs_recorded_at_idx ON gateway.shadow_pairs USING brin (recorded_at);
CREATE INDEX shadow_pairs_release_model_idx ON gateway.shadow_pairs (release, model);
CREATE INDEX shadow_pairs_release_transaction_id_idx ON gateway.shadow_pairs (release, transaction_id);

CREATE TABLE gateway.slo_hours (
    at timestamptz NOT NULL, organization_id uuid NOT NULL, tier text NOT NULL, length text NOT NULL,
    model text NOT NULL, pool text NOT NULL, side text NOT NULL, requests bigint NOT NULL, counted bigint NOT NULL,
    failed bigint NOT NULL, shed bigint NOT NULL, limited bigint NOT NULL, abandoned bigint NOT NULL,
    superseded bigint NOT NULL, good bigint NOT NULL, ttft_kept bigint NOT NULL, tpot_kept bigint NOT NULL,
    gap_kept bigint NOT NULL, prompt_tokens bigint NOT NULL, cached_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL, good_tokens bigint NOT NULL, over_share bigint NOT NULL,
    PRIMARY KEY (at, organization_id, tier, length, model, pool, side));
CREATE INDEX slo_hours_organization_id_at_idx ON gateway.slo_hours (organization_id, at);

CREATE TABLE gateway.slo_minutes (
    minute timestamptz NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, tier text NOT NULL,
    length text NOT NULL, model text NOT NULL, pool text NOT NULL, side text NOT NULL, version bigint NOT NULL,
    requests bigint NOT NULL, counted bigint NOT NULL, failed bigint NOT NULL, shed bigint NOT NULL,
    limited bigint NOT NULL, abandoned bigint NOT NULL, superseded bigint NOT NULL, good bigint NOT NULL,
    ttft_kept bigint NOT NULL, tpot_kept bigint NOT NULL, gap_kept bigint NOT NULL, prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL, completion_tokens bigint NOT NULL, good_tokens bigint NOT NULL,
    over_share bigint DEFAULT 0 NOT NULL,
    PRIMARY KEY (minute, organization_id, project_id, tier, length, model, pool, side));
CREATE INDEX slo_minutes_organization_id_minute_idx ON gateway.slo_minutes (organization_id, minute);

CREATE TABLE gateway.slo_objectives (
    version bigint NOT NULL, tier text NOT NULL, length text NOT NULL, valid_from timestamptz NOT NULL,
    ttft_ms double precision NOT NULL, tpot_ms double precision, itl_max_ms double precision,
    target double precision NOT NULL,
    PRIMARY KEY (version, tier, length),
    CONSTRAINT slo_objectives_length_check CHECK (length IN ('short', 'medium', 'long')),
    CONSTRAINT slo_objectives_target_check CHECK (target > 0 AND target < 1),
    CONSTRAINT slo_objectives_tier_check CHECK (tier IN ('autocomplete', 'chat')));

CREATE TABLE gateway.slo_roll_up_runs (
    started_at timestamptz NOT NULL, seconds double precision NOT NULL, minutes integer NOT NULL,
    PRIMARY KEY (started_at));

CREATE TABLE gateway.usage_daily (
    day date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, key_id uuid NOT NULL,
    model text NOT NULL, tier text NOT NULL, requests bigint NOT NULL, prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL, completion_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, amount_micro bigint NOT NULL, computed_at timestamptz DEFAULT now() NOT NULL,
    draft_tokens bigint DEFAULT 0 NOT NULL, accepted_draft_tokens bigint DEFAULT 0 NOT NULL,
    adapter text DEFAULT '' NOT NULL,
    PRIMARY KEY (day, organization_id, project_id, key_id, model, tier, adapter));
CREATE INDEX usage_daily_key_id_day_idx ON gateway.usage_daily (key_id, day);
CREATE INDEX usage_daily_organization_id_day_idx ON gateway.usage_daily (organization_id, day);
CREATE INDEX usage_daily_project_id_day_idx ON gateway.usage_daily (project_id, day);

CREATE TABLE gateway.usage_events (
    request_id text COLLATE "C" NOT NULL, attempt smallint NOT NULL, organization_id uuid NOT NULL,
    project_id uuid NOT NULL, key_id uuid NOT NULL, model text NOT NULL, tier text NOT NULL, endpoint text NOT NULL,
    pool text, replica_id text, driver text, stream boolean NOT NULL, prompt_tokens integer NOT NULL,
    cached_tokens integer NOT NULL, cache_write_tokens integer DEFAULT 0 NOT NULL, completion_tokens integer NOT NULL,
    reasoning_tokens integer NOT NULL, draft_tokens integer DEFAULT 0 NOT NULL,
    accepted_draft_tokens integer DEFAULT 0 NOT NULL, outcome text NOT NULL, finish text NOT NULL,
    billed boolean NOT NULL, price_version bigint, amount_micro bigint DEFAULT 0 NOT NULL, status smallint,
    error_code text, phases_ms jsonb NOT NULL, requested_at timestamptz NOT NULL, opened_at timestamptz NOT NULL,
    closed_at timestamptz NOT NULL, recorded_at timestamptz DEFAULT now() NOT NULL, gateway_id text NOT NULL,
    purpose text, adapter text,
    PRIMARY KEY (request_id, attempt),
    CONSTRAINT usage_events_amount_micro_check
        CHECK (amount_micro >= 0 AND (amount_micro = 0 OR billed AND price_version IS NOT NULL)),
    CONSTRAINT usage_events_finish_check
        CHECK (finish IN ('complete', 'client_gone', 'engine_error', 'not_placed', 'gateway_crash')),
    CONSTRAINT usage_events_outcome_check
        CHECK (outcome IN ('exact', 'lower_bound', 'unknown')))
PARTITION BY RANGE (request_id);
CREATE INDEX usage_events_closed_at_idx ON gateway.usage_events USING brin (closed_at);
CREATE INDEX usage_events_key_id_request_id_attempt_idx ON gateway.usage_events (key_id, request_id, attempt);
CREATE UNIQUE INDEX usage_events_one_billed_attempt_idx ON gateway.usage_events (request_id) WHERE billed;
CREATE INDEX usage_events_organization_id_request_id_attempt_idx ON gateway.usage_events
    (organization_id, request_id, attempt);
CREATE INDEX usage_events_project_id_request_id_attempt_idx ON gateway.usage_events (project_id, request_id, attempt);
CREATE INDEX usage_events_recorded_at_idx ON gateway.usage_events USING brin (recorded_at);
CREATE TABLE gateway.usage_events_first PARTITION OF gateway.usage_events
    FOR VALUES FROM (MINVALUE) TO ('req_016f5e66e800');
CREATE TABLE gateway.usage_events_last PARTITION OF gateway.usage_events
    FOR VALUES FROM ('req_03bb2cc3d800') TO (MAXVALUE);

CREATE TABLE gateway.usage_hourly (
    hour timestamptz NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, key_id uuid NOT NULL,
    model text NOT NULL, tier text NOT NULL, requests bigint NOT NULL, prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL, completion_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, amount_micro bigint NOT NULL, computed_at timestamptz DEFAULT now() NOT NULL,
    draft_tokens bigint DEFAULT 0 NOT NULL, accepted_draft_tokens bigint DEFAULT 0 NOT NULL,
    adapter text DEFAULT '' NOT NULL,
    PRIMARY KEY (hour, organization_id, project_id, key_id, model, tier, adapter));
CREATE INDEX usage_hourly_organization_id_hour_idx ON gateway.usage_hourly (organization_id, hour);

CREATE TABLE gateway.usage_retired_days (
    day date NOT NULL, rows bigint NOT NULL, amount_micro bigint NOT NULL,
    retired_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (day));

CREATE TABLE gateway.usage_roll_up_runs (
    started_at timestamptz NOT NULL, seconds double precision NOT NULL, hours integer NOT NULL,
    PRIMARY KEY (started_at));

CREATE TABLE gateway.usage_verifications (
    checked_at timestamptz DEFAULT now() NOT NULL, from_day date NOT NULL, until_day date NOT NULL,
    rows bigint NOT NULL, wrong_hours bigint NOT NULL, wrong_days bigint NOT NULL, wrong_amounts bigint NOT NULL,
    PRIMARY KEY (checked_at));

CREATE TABLE gateway.usage_week_closings (
    until date NOT NULL,
    PRIMARY KEY (until));

CREATE TABLE gateway.usage_weekly (
    week date NOT NULL, organization_id uuid NOT NULL, project_id uuid NOT NULL, key_id uuid NOT NULL,
    model text NOT NULL, tier text NOT NULL, requests bigint NOT NULL, prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL, cache_write_tokens bigint NOT NULL, completion_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL, amount_micro bigint NOT NULL, draft_tokens bigint DEFAULT 0 NOT NULL,
    accepted_draft_tokens bigint DEFAULT 0 NOT NULL, computed_at timestamptz DEFAULT now() NOT NULL,
    adapter text DEFAULT '' NOT NULL,
    PRIMARY KEY (week, organization_id, project_id, key_id, model, tier, adapter));
CREATE INDEX usage_weekly_organization_id_week_idx ON gateway.usage_weekly (organization_id, week);

CREATE TABLE gateway.webhook_events (
    id uuid DEFAULT gen_random_uuid() NOT NULL, organization_id uuid NOT NULL, type text NOT NULL,
    data jsonb NOT NULL, once text, to_webhook_id uuid, created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT webhook_events_organization_id_once_key UNIQUE (organization_id, once));
CREATE INDEX webhook_events_created_at_idx ON gateway.webhook_events (created_at);

CREATE TABLE gateway.webhooks (
    id uuid DEFAULT gen_random_uuid() NOT NULL, organization_id uuid NOT NULL, url text NOT NULL,
    description text NOT NULL, events text[], secret bytea NOT NULL, previous_secret bytea,
    previous_secret_expires_at timestamptz, created_at timestamptz DEFAULT now() NOT NULL, disabled_at timestamptz,
    PRIMARY KEY (id),
    CONSTRAINT webhooks_previous_check CHECK ((previous_secret IS NULL) = (previous_secret_expires_at IS NULL)),
    CONSTRAINT webhooks_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES gateway.organizations (id));
CREATE INDEX webhooks_organization_id_created_at_id_idx ON gateway.webhooks (organization_id, created_at, id);

CREATE TABLE gateway.webhook_deliveries (
    id uuid DEFAULT gen_random_uuid() NOT NULL, webhook_id uuid NOT NULL, event_id uuid NOT NULL,
    state text DEFAULT 'pending' NOT NULL, attempts smallint DEFAULT 0 NOT NULL,
    next_attempt_at timestamptz DEFAULT now() NOT NULL, created_at timestamptz DEFAULT now() NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT webhook_deliveries_state_check CHECK (state IN ('pending', 'delivered', 'failed')),
    CONSTRAINT webhook_deliveries_event_id_fkey
        FOREIGN KEY (event_id) REFERENCES gateway.webhook_events (id) ON DELETE CASCADE,
    CONSTRAINT webhook_deliveries_webhook_id_fkey
        FOREIGN KEY (webhook_id) REFERENCES gateway.webhooks (id) ON DELETE CASCADE);
CREATE INDEX webhook_deliveries_event_id_idx ON gateway.webhook_deliveries (event_id);
CREATE INDEX webhook_deliveries_pending_idx ON gateway.webhook_deliveries
    (webhook_id, next_attempt_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_webhook_id_created_at_id_idx ON gateway.webhook_deliveries
    (webhook_id, created_at, id);

CREATE TABLE gateway.webhook_attempts (
    delivery_id uuid NOT NULL, attempt smallint NOT NULL, at timestamptz DEFAULT now() NOT NULL, status smallint,
    error text, duration_ms double precision NOT NULL,
    PRIMARY KEY (delivery_id, attempt),
    CONSTRAINT webhook_attempts_delivery_id_fkey
        FOREIGN KEY (delivery_id) REFERENCES gateway.webhook_deliveries (id) ON DELETE CASCADE);
"""

# Days lie between req_016f5e66e800 (2020-01-01) and req_03bb2cc3d800 (2100-01-01). Ids without a time lie in the first
# and the last partition.
USAGE_DAYS = """
CREATE FUNCTION gateway.usage_first_id(at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'req_' || lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0');

CREATE FUNCTION gateway.usage_day_of(request_id text) RETURNS date LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN CASE
    WHEN request_id COLLATE "C" >= 'req_016f5e66e800' AND request_id COLLATE "C" < 'req_03bb2cc3d800'
     AND request_id ~ '^req_[0-9a-f]{12}'
    THEN date '1970-01-01' + (('x' || substr(request_id, 5, 12))::bit(48)::bigint / 86400000)::int
END;
"""

FUNCTIONS = """
CREATE FUNCTION gateway.audit_text(entry gateway.audit_log) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(coalesce(octet_length(field) || ':' || field, '-'), ',' ORDER BY position)
      FROM unnest(ARRAY[
        entry.id::text, (extract(epoch FROM entry.at) * 1000000)::bigint::text, entry.actor_kind, entry.actor_id::text,
        entry.actor_name, entry.admin_key_id::text, entry.request_id, entry.organization_id::text, entry.action,
        entry.subject_kind, entry.subject_id, entry.before::text, entry.after::text
      ]) WITH ORDINALITY AS fields (field, position)
$$;
CREATE FUNCTION gateway.chain_audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last gateway.audit_log;
BEGIN
    PERFORM pg_advisory_xact_lock(1635083369);
    SELECT * INTO last FROM gateway.audit_log ORDER BY id DESC LIMIT 1;
    NEW.id := coalesce(last.id, 0) + 1;
    NEW.at := clock_timestamp();
    NEW.previous_hash := coalesce(last.hash, decode(repeat('00', 32), 'hex'));
    NEW.hash := sha256(NEW.previous_hash || convert_to(gateway.audit_text(NEW), 'UTF8'));
    RETURN NEW;
END
$$;
CREATE FUNCTION gateway.ensure_usage_day(day date) RETURNS boolean LANGUAGE plpgsql
    SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp' AS $$
DECLARE
    name text := 'usage_events_' || to_char(day, 'YYYYMMDD');
    first timestamptz := day::timestamp AT TIME ZONE 'UTC';
BEGIN
    PERFORM pg_advisory_xact_lock(1970430573);
    -- Not to_regclass: it remembers what it did not find before another one made it.
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
CREATE FUNCTION gateway.fan_out_webhook_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO gateway.webhook_deliveries (webhook_id, event_id)
    SELECT id, NEW.id FROM gateway.webhooks
     WHERE organization_id = NEW.organization_id
       AND CASE WHEN NEW.to_webhook_id IS NULL
                THEN disabled_at IS NULL AND (events IS NULL OR NEW.type = ANY (events))
                ELSE id = NEW.to_webhook_id END;
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.forget_completion_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = NEW.id;
    DELETE FROM gateway.prefix_texts WHERE organization_id = NEW.id;
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.forget_organization_texts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM gateway.completion_texts WHERE organization_id = OLD.id;
    DELETE FROM gateway.prefix_texts WHERE organization_id = OLD.id;
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.forget_review_texts(whose uuid) RETURNS void LANGUAGE sql AS $$
    DELETE FROM gateway.reviews
     WHERE project_id = whose AND NOT EXISTS (SELECT FROM gateway.review_votes WHERE review_id = id);
    UPDATE gateway.reviews SET project_id = NULL, prompt = NULL, baseline = NULL, candidate = NULL
     WHERE project_id = whose;
$$;
CREATE FUNCTION gateway.forget_reviews_of_project() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM gateway.forget_review_texts(OLD.id);
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.guard_price() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.valid_from <= now() THEN
            RAISE EXCEPTION 'price % has begun and cannot be deleted; end it', OLD.version
                USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF to_jsonb(OLD) - ARRAY['valid_until', 'ended_by_next'] \
IS DISTINCT FROM to_jsonb(NEW) - ARRAY['valid_until', 'ended_by_next'] THEN
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
CREATE FUNCTION gateway.note_allow_reviews() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.allow_reviews_since := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE FUNCTION gateway.note_store_prompts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.store_prompts_since := clock_timestamp();
    RETURN NEW;
END
$$;
CREATE FUNCTION gateway.notify_adapters() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Both, for an update may give it to somebody else.
    PERFORM pg_notify('slipstream_keys', 'organization:' || organization_id)
       FROM (VALUES (OLD.organization_id), (NEW.organization_id)) AS owner (organization_id)
      WHERE organization_id IS NOT NULL;
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.notify_all_keys() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_keys', '*');
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.notify_desired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_desired', NEW.version::text);
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.notify_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
        PERFORM pg_notify('slipstream_keys', encode(OLD.hash, 'hex'));
        IF OLD.previous_hash IS NOT NULL THEN
            PERFORM pg_notify('slipstream_keys', encode(OLD.previous_hash, 'hex'));
        END IF;
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        PERFORM pg_notify('slipstream_keys', encode(NEW.hash, 'hex'));
        IF NEW.previous_hash IS NOT NULL THEN
            PERFORM pg_notify('slipstream_keys', encode(NEW.previous_hash, 'hex'));
        END IF;
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.notify_keys_of() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_keys', TG_ARGV[0] || ':' || NEW.id);
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.notify_limits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changed record;
BEGIN
    -- Both, for an update may give a rule to somebody else.
    FOR changed IN SELECT DISTINCT level, subject_id
                     FROM (VALUES (OLD.level, OLD.subject_id), (NEW.level, NEW.subject_id)) AS rule (level, subject_id)
                    WHERE level IS NOT NULL
    LOOP
        IF changed.level <> 'key' THEN
            PERFORM pg_notify('slipstream_keys', changed.level || ':' || changed.subject_id);
        ELSE
            PERFORM pg_notify('slipstream_keys', encode(each, 'hex'))
               FROM gateway.api_keys, unnest(ARRAY[hash, previous_hash]) AS each
              WHERE id = changed.subject_id AND each IS NOT NULL;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.notify_prices() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('slipstream_prices', '');
    RETURN NULL;
END
$$;
CREATE FUNCTION gateway.refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'gateway.audit_log is append-only: % refused', TG_OP;
END
$$;
CREATE FUNCTION gateway.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of %: its rows are never changed or deleted; retention drops whole days', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE FUNCTION gateway.retire_usage_day(day date, retention_days integer) RETURNS boolean LANGUAGE plpgsql
    SECURITY DEFINER SET search_path TO 'pg_catalog', 'pg_temp' SET lock_timeout TO '2s' AS $$
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

TRIGGERS = """
CREATE TRIGGER adapters_notify AFTER INSERT OR DELETE OR UPDATE ON gateway.adapters
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_adapters();
CREATE TRIGGER api_keys_notify AFTER INSERT OR DELETE ON gateway.api_keys
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_key();
CREATE TRIGGER api_keys_notify_truncate AFTER TRUNCATE ON gateway.api_keys
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_all_keys();
CREATE TRIGGER api_keys_notify_update AFTER UPDATE ON gateway.api_keys
    FOR EACH ROW WHEN ((to_jsonb(old.*) - 'last_used_at') IS DISTINCT FROM (to_jsonb(new.*) - 'last_used_at'))
    EXECUTE FUNCTION gateway.notify_key();
CREATE TRIGGER audit_log_append_only BEFORE DELETE OR UPDATE ON gateway.audit_log
    FOR EACH ROW EXECUTE FUNCTION gateway.refuse_audit_change();
CREATE TRIGGER audit_log_append_only_truncate BEFORE TRUNCATE ON gateway.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_audit_change();
CREATE TRIGGER audit_log_chain BEFORE INSERT ON gateway.audit_log FOR EACH ROW EXECUTE FUNCTION gateway.chain_audit();
CREATE TRIGGER desired_states_notify AFTER INSERT OR UPDATE ON gateway.desired_states
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_desired();
CREATE TRIGGER limits_notify AFTER INSERT OR DELETE OR UPDATE ON gateway.limits
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_limits();
CREATE TRIGGER limits_notify_truncate AFTER TRUNCATE ON gateway.limits
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_all_keys();
CREATE TRIGGER organizations_deleted AFTER DELETE ON gateway.organizations
    FOR EACH ROW EXECUTE FUNCTION gateway.forget_organization_texts();
CREATE TRIGGER organizations_forget_texts AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (old.store_prompts AND NOT new.store_prompts)
    EXECUTE FUNCTION gateway.forget_completion_texts();
CREATE TRIGGER organizations_notify AFTER UPDATE ON gateway.organizations
    FOR EACH ROW WHEN ((old.disabled_at, old.store_prompts)
        IS DISTINCT FROM (new.disabled_at, new.store_prompts))
    EXECUTE FUNCTION gateway.notify_keys_of('organization');
CREATE TRIGGER organizations_store_prompts BEFORE UPDATE ON gateway.organizations
    FOR EACH ROW WHEN (new.store_prompts AND NOT old.store_prompts) EXECUTE FUNCTION gateway.note_store_prompts();
CREATE TRIGGER guard_price BEFORE DELETE OR UPDATE ON gateway.prices
    FOR EACH ROW EXECUTE FUNCTION gateway.guard_price();
CREATE TRIGGER prices_notify AFTER INSERT OR DELETE OR UPDATE ON gateway.prices
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_prices();
CREATE TRIGGER priorities_notify AFTER INSERT OR DELETE OR UPDATE ON gateway.priorities
    FOR EACH ROW EXECUTE FUNCTION gateway.notify_limits();
CREATE TRIGGER priorities_notify_truncate AFTER TRUNCATE ON gateway.priorities
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.notify_all_keys();
CREATE TRIGGER projects_allow_reviews BEFORE UPDATE ON gateway.projects
    FOR EACH ROW WHEN (new.allow_reviews AND NOT old.allow_reviews) EXECUTE FUNCTION gateway.note_allow_reviews();
CREATE TRIGGER projects_deleted AFTER DELETE ON gateway.projects
    FOR EACH ROW EXECUTE FUNCTION gateway.forget_reviews_of_project();
CREATE TRIGGER projects_forget_reviews AFTER UPDATE ON gateway.projects
    FOR EACH ROW WHEN (old.allow_reviews AND NOT new.allow_reviews)
    EXECUTE FUNCTION gateway.forget_reviews_of_project();
CREATE TRIGGER projects_notify AFTER UPDATE ON gateway.projects
    FOR EACH ROW WHEN ((old.organization_id, old.models, old.tiers, old.disabled_at, old.allow_reviews)
        IS DISTINCT FROM (new.organization_id, new.models, new.tiers, new.disabled_at, new.allow_reviews))
    EXECUTE FUNCTION gateway.notify_keys_of('project');
CREATE TRIGGER refuse_change BEFORE DELETE OR UPDATE ON gateway.usage_events
    FOR EACH ROW EXECUTE FUNCTION gateway.refuse_change();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.usage_events
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change();
CREATE TRIGGER webhook_events_fan_out AFTER INSERT ON gateway.webhook_events
    FOR EACH ROW EXECUTE FUNCTION gateway.fan_out_webhook_event();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.usage_events_first
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change();
CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON gateway.usage_events_last
    FOR EACH STATEMENT EXECUTE FUNCTION gateway.refuse_change();
"""


def upgrade() -> None:
    for statements in (TABLES, USAGE_DAYS, FUNCTIONS, TRIGGERS):
        op.execute(statements)


def downgrade() -> None:
    op.execute("DROP SCHEMA gateway, evals CASCADE")
