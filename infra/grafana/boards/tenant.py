"""Who uses what: from PostgreSQL, for metrics know no customers."""

from __future__ import annotations

from infra.grafana.board import Board, Panel, SqlQuery, Variable

OF_HOURS = "$__timeFilter(hour) AND usage_hourly.organization_id::text IN ($organization)"
ORGANIZATIONS = "gateway.organizations ON organizations.id = usage_hourly.organization_id"


def _by_hour(value: str) -> tuple[SqlQuery, ...]:
    statement = (
        f"SELECT hour AS time, organizations.name AS metric, {value} AS value\n"  # noqa: S608  of constants of this file
        f"  FROM gateway.usage_hourly JOIN {ORGANIZATIONS}\n"
        f" WHERE {OF_HOURS}\n"
        " GROUP BY hour, organizations.name\n"
        " ORDER BY hour"
    )
    return (SqlQuery(statement),)


BOARD = Board(
    name="tenant",
    title="Slipstream: tenant",
    description="Who uses what: from PostgreSQL, for metrics know no customers. Totals are at most a minute old.",
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
            queries=_by_hour("sum(requests)"),
            stacked=True,
        ),
        Panel(
            title="Tokens",
            description="Prompt and completion tokens by hour.",
            unit="short",
            queries=_by_hour("sum(prompt_tokens + completion_tokens)"),
            stacked=True,
        ),
        Panel(
            title="Amount",
            description="What was billed by hour, in units of the currency.",
            unit="short",
            queries=_by_hour("sum(amount_micro) / 1e6"),
            stacked=True,
        ),
        Panel(
            title="Cached",
            description="Part of the prompt tokens that engines had cached, by hour. A fall is a prompt whose"
            " beginning changes.",
            unit="percentunit",
            queries=_by_hour("sum(cached_tokens)::float8 / nullif(sum(prompt_tokens), 0)"),
            alerts=("prefix/FilesAreForgottenBetweenKeystrokes",),
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
