"""A LiteLLM proxy's configuration and database as their owner has them: some of it moves, some of it cannot."""

from __future__ import annotations

import hashlib
from datetime import datetime

import asyncpg

CONFIG = """
model_list:
  - model_name: qwen-coder
    litellm_params: {model: hosted_vllm/Qwen/Qwen3-Coder, api_base: "http://10.0.0.1:8000/v1", rpm: 600}
    model_info: {max_input_tokens: 65536, input_cost_per_token: 2.0e-07, output_cost_per_token: 8.0e-07}
  - model_name: qwen-coder
    litellm_params:
      model: hosted_vllm/Qwen/Qwen3-Coder
      api_base: http://10.0.0.2:8000/v1
      weight: 2
  - model_name: qwen-coder
    litellm_params: {model: anthropic/claude-sonnet-5, api_key: os.environ/ANTHROPIC_API_KEY}
  - model_name: team/small
    litellm_params: {model: openai/small, api_base: os.environ/SMALL_URL, api_key: sk-real-secret, timeout: 30}
    model_info: {mode: chat, supports_vision: true, output_cost_per_token: 1.0e-06}
  - model_name: embed
    litellm_params: {model: openai/embed, api_base: "http://10.0.0.4:8000", api_key: none, weight: heavy}
    model_info: {mode: embedding}
  - model_name: "openai/*"
    litellm_params: {model: "openai/*", api_key: os.environ/OPENAI_API_KEY}
  - model_name: speech
    litellm_params: {model: openai/speech, api_base: "http://10.0.0.5:8000", api_key: none}
    model_info: {mode: audio_speech}
router_settings:
  model_group_alias: {gpt-4o: qwen-coder, mini: {model: team/small, hidden: true}, gone: nowhere}
  routing_strategy: latency-based-routing
  fallbacks: [{qwen-coder: [team/small]}]
  num_retries: 2
litellm_settings: {drop_params: true, success_callback: [langfuse], cache: false}
general_settings: {master_key: sk-master, unheard_of: 1}
guardrails: [{guardrail_name: pii}]
"""
SECRET_OF_ACME = "sk-Q1cUj0r3T2sVYl9aXb7d5w"
SECRETS = {
    "acme-ci": SECRET_OF_ACME,
    "acme-narrow": "sk-narrowKeyOfAcme0000000",
    "ada-laptop": "sk-adaLaptop0000000000000",
    "blocked": "sk-blocked000000000000000",
    "expired": "sk-expired000000000000000",
    "ops-narrow": "sk-opsNarrow0000000000000",
    "ui": "sk-ui00000000000000000000",
}
TABLES = """
CREATE SCHEMA litellm;
SET search_path = litellm;
CREATE TABLE "LiteLLM_BudgetTable" (budget_id text PRIMARY KEY, max_budget double precision,
    soft_budget double precision, max_parallel_requests integer, tpm_limit bigint, rpm_limit bigint,
    model_max_budget jsonb, budget_duration text, budget_reset_at timestamp(3));
CREATE TABLE "LiteLLM_OrganizationTable" (organization_id text PRIMARY KEY, organization_alias text NOT NULL,
    budget_id text NOT NULL, metadata jsonb NOT NULL DEFAULT '{}', models text[], spend double precision DEFAULT 0,
    created_at timestamp(3) NOT NULL DEFAULT now());
CREATE TABLE "LiteLLM_TeamTable" (team_id text PRIMARY KEY, team_alias text, organization_id text,
    metadata jsonb NOT NULL DEFAULT '{}', max_budget double precision, spend double precision DEFAULT 0, models text[],
    max_parallel_requests integer, tpm_limit bigint, rpm_limit bigint, budget_duration text,
    blocked boolean NOT NULL DEFAULT false, members_with_roles jsonb NOT NULL DEFAULT '{}',
    created_at timestamp(3) NOT NULL DEFAULT now());
CREATE TABLE "LiteLLM_UserTable" (user_id text PRIMARY KEY, user_email text, user_alias text, models text[],
    max_budget double precision, budget_duration text, tpm_limit bigint, rpm_limit bigint,
    max_parallel_requests integer);
CREATE TABLE "LiteLLM_VerificationToken" (token text PRIMARY KEY, key_name text, key_alias text, expires timestamp(3),
    models text[] NOT NULL DEFAULT '{}', aliases jsonb NOT NULL DEFAULT '{}', metadata jsonb NOT NULL DEFAULT '{}',
    user_id text, team_id text, organization_id text, project_id text, blocked boolean, tpm_limit bigint,
    rpm_limit bigint, max_parallel_requests integer, max_budget double precision, budget_duration text,
    budget_id text, allowed_routes text[] DEFAULT '{}', spend double precision DEFAULT 0,
    created_at timestamp(3) DEFAULT now());
CREATE TABLE "LiteLLM_EndUserTable" (user_id text PRIMARY KEY);
"""
ROWS = """
INSERT INTO "LiteLLM_EndUserTable" VALUES ('customer-1'), ('customer-2');
INSERT INTO "LiteLLM_BudgetTable" (budget_id, max_budget, budget_duration, tpm_limit) VALUES ('b1', 500, '1mo', 90000);
INSERT INTO "LiteLLM_OrganizationTable" (organization_id, organization_alias, budget_id, models)
    VALUES ('o1', 'Holding', 'b1', '{}');
INSERT INTO "LiteLLM_TeamTable" (team_id, team_alias, organization_id, max_budget, budget_duration, rpm_limit, models,
                                 blocked, created_at) VALUES
    ('t1', 'acme', NULL, 20, '30d', 60, '{qwen-coder,gpt-4o,team/small,gone}', false, '2026-01-01'),
    ('t2', 'acme', NULL, 7, '1d', NULL, '{}', true, '2026-01-02'),
    ('t3', 'ops', 'o1', NULL, NULL, 30, '{}', false, '2026-01-03');
INSERT INTO "LiteLLM_UserTable" (user_id, user_email, models, tpm_limit) VALUES ('u1', 'ada@acme.example', '{}', 1000);
"""
KEY = """
INSERT INTO "LiteLLM_VerificationToken" (token, key_name, key_alias, team_id, user_id, models, expires, blocked,
    max_parallel_requests, allowed_routes, aliases, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""


async def fill(url: str) -> None:
    """LiteLLM's tables with these rows, in a schema of their own."""
    connection = await asyncpg.connect(url)
    await connection.execute(TABLES + ROWS)
    keys: list[tuple[str, str | None, str | None, list[str], datetime | None, bool | None, list[str], str]] = [
        ("acme-ci", "t1", None, [], None, None, [], "{}"),
        ("acme-narrow", "t1", None, ["qwen-coder", "claude"], None, None, ["/v1/chat/completions"], '{"a": "b"}'),
        ("ada-laptop", None, "u1", ["all-team-models"], datetime(2099, 1, 1), None, [], "{}"),
        ("blocked", "t1", None, [], None, True, [], "{}"),
        ("expired", "t1", None, [], datetime(2026, 1, 1), None, [], "{}"),
        ("ops-narrow", "t3", None, ["qwen-coder"], None, None, [], "{}"),
        ("ui", "litellm-dashboard", "u1", [], None, None, [], "{}"),
    ]
    for number, (alias, team, user, models, expires, blocked, routes, aliases) in enumerate(keys):
        secret = SECRETS[alias]
        token = hashlib.sha256(secret.encode()).hexdigest()
        at = datetime(2026, 2, 1 + number)
        await connection.execute(
            KEY, token, f"sk-...{secret[-4:]}", alias, team, user, models, expires, blocked, 3, routes, aliases, at
        )
    await connection.close()
