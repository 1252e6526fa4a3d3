"""Each customer's usage. It comes from PostgreSQL, because metrics have no label for a customer."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, SqlQuery, Variable

OF_HOURS = "$__timeFilter(hour) AND usage_hourly.organization_id::text IN ($organization)"
ORGANIZATIONS = "gateway.organizations ON organizations.id = usage_hourly.organization_id"


def _by_hour(values: str) -> tuple[SqlQuery, ...]:
    statement = (
        f"SELECT hour AS time, organizations.name AS metric, {values}\n"  # noqa: S608  of constants of this file
        f"  FROM gateway.usage_hourly JOIN {ORGANIZATIONS}\n"
        f" WHERE {OF_HOURS}\n"
        " GROUP BY hour, organizations.name\n"
        " ORDER BY hour"
    )
    return (SqlQuery(statement),)


def _by_interval(column: str, table: str, values: str) -> tuple[SqlQuery, ...]:
    statement = (
        f"SELECT $__timeGroup({column}, $__interval) AS time, organizations.name AS metric, {values}\n"  # noqa: S608
        f"  FROM gateway.{table} JOIN gateway.organizations ON organizations.id = {table}.organization_id\n"
        f" WHERE $__timeFilter({column}) AND {table}.organization_id::text IN ($organization)\n"
        " GROUP BY 1, organizations.name\n"
        " ORDER BY 1"
    )
    return (SqlQuery(statement),)


BOARD = Board(
    name="tenant",
    title="Slipstream: tenant",
    description="Each customer's usage, from PostgreSQL. Totals are at most a minute old.",
    variables=(
        Variable(
            "organization",
            "Organization",
            "SELECT name AS __text, id::text AS __value FROM gateway.organizations ORDER BY name",
            sql=True,
        ),
    ),
    panels=(
        Panel(
            title="Requests",
            description="Billed requests by hour.",
            unit="short",
            queries=_by_hour("sum(requests) AS requests"),
            stacked=True,
        ),
        Panel(
            title="Tokens",
            description="Prompt and completion tokens by hour.",
            unit="short",
            queries=_by_hour("sum(prompt_tokens + completion_tokens) AS tokens"),
            stacked=True,
        ),
        Panel(
            title="Amount",
            description="What was billed by hour, in units of the currency.",
            unit="short",
            queries=_by_hour("sum(amount_micro) / 1e6 AS amount"),
            stacked=True,
        ),
        Panel(
            title="Cached",
            description="Part of the prompt tokens that engines had cached, by hour. A fall is a prompt whose"
            " beginning changes.",
            unit="percentunit",
            queries=_by_hour("sum(cached_tokens)::float8 / nullif(sum(prompt_tokens), 0) AS share"),
            alerts=("prefix/FilesAreForgottenBetweenKeystrokes", "prefix/ATenantsPromptsAreReusedByHalf"),
        ),
        Panel(
            title="Good requests",
            description="Part of the counted requests that kept all objectives of their tier and length class.",
            unit="percentunit",
            queries=_by_interval("minute", "slo_minutes", "sum(good)::float8 / nullif(sum(counted), 0) AS share"),
            alerts=("objectives/ErrorBudgetBurnsFast", "objectives/ErrorBudgetBurnsSlowly"),
        ),
        Panel(
            title="Good tokens",
            description="Generated tokens of requests that kept all their objectives.",
            unit="short",
            queries=_by_interval("minute", "slo_minutes", "sum(good_tokens) AS tokens"),
            stacked=True,
        ),
        Panel(
            title="Refused and failed",
            description="Requests that failed or were turned away for lack of room, those turned away while the "
            "tenant requested more than its share, and requests that met a limit of theirs.",
            unit="short",
            queries=_by_interval(
                "minute",
                "slo_minutes",
                "sum(failed) AS failed, sum(over_share) AS over_share, sum(limited) AS limited",
            ),
        ),
        Panel(
            title="Reusable prompts",
            description="Part of the prompt tokens that an earlier prompt of the same template had begun with: what a"
            " cache could have saved.",
            unit="percentunit",
            queries=_by_interval(
                "hour", "prefix_shares", "sum(reusable_tokens)::float8 / nullif(sum(prompt_tokens), 0) AS share"
            ),
            alerts=("prefix/ATenantsPromptsAreReusedByHalf",),
        ),
        Panel(
            title="By model",
            description="Use within the time chosen, by organization, project and model, the most tokens first.",
            unit="short",
            kind="table",
            width=24,
            queries=(
                SqlQuery(
                    "SELECT organizations.name AS organization, projects.name AS project, usage_hourly.model,\n"  # noqa: S608
                    "       usage_hourly.tier, sum(requests) AS requests, sum(prompt_tokens) AS prompt_tokens,\n"
                    "       sum(cached_tokens) AS cached_tokens, sum(completion_tokens) AS completion_tokens,\n"
                    "       sum(amount_micro) / 1e6 AS amount\n"
                    f"  FROM gateway.usage_hourly JOIN {ORGANIZATIONS}\n"
                    "  JOIN gateway.projects ON projects.id = usage_hourly.project_id\n"
                    f" WHERE {OF_HOURS}\n"
                    " GROUP BY organizations.name, projects.name, usage_hourly.model, usage_hourly.tier\n"
                    " ORDER BY sum(prompt_tokens + completion_tokens) DESC LIMIT 100",
                    "table",
                ),
            ),
        ),
        Panel(
            title="Budgets",
            description="Shares of monthly budgets reached within the time chosen, newest first.",
            unit="short",
            kind="table",
            width=24,
            queries=(
                SqlQuery(
                    "SELECT crossed_at AS time, organizations.name AS organization, level, tier, month, percent,\n"
                    "       spent_micro / 1e6 AS spent, limit_micro / 1e6 AS budget\n"
                    "  FROM gateway.budget_crossings\n"
                    "  JOIN gateway.organizations ON organizations.id = budget_crossings.organization_id\n"
                    " WHERE $__timeFilter(crossed_at) AND budget_crossings.organization_id::text IN ($organization)\n"
                    " ORDER BY crossed_at DESC LIMIT 100",
                    "table",
                ),
            ),
        ),
    ),
)
