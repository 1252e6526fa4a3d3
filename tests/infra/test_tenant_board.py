"""The board "tenant" asks PostgreSQL: each of its queries gives data, as the role that may read nothing more."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from control.slo.tables import COUNTS
from infra.grafana.board import SqlQuery
from infra.grafana.boards import tenant
from tests.databases import as_owner
from tests.deployment import ROOT

READER = (ROOT / "infra" / "grafana" / "reader.sql").read_text()
QUERIES = [
    (panel.title, query) for panel in tenant.BOARD.panels for query in panel.queries if isinstance(query, SqlQuery)
]
NOW = datetime(2026, 11, 20, 15, tzinfo=UTC)


def as_grafana_sends_it(statement: str, organizations: list[uuid.UUID]) -> str:
    """Macros and the variable replaced, as Grafana's PostgreSQL data source does."""
    listed = ",".join(f"'{one}'" for one in organizations)
    chosen = statement.replace("$organization", listed)
    asked = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN '2026-11-20T00:00:00Z' AND '2026-11-21T00:00:00Z'", chosen)
    asked = re.sub(r"\$__timeGroup\((\w+), \$__interval\)", r"floor(extract(epoch from \1) / 300) * 300", asked)
    assert "$" not in asked
    return asked


async def _used(owner: asyncpg.Connection[Any], name: str, prompt_tokens: int) -> uuid.UUID:
    """An organization that has used something, and a share of its budget."""
    organization: uuid.UUID = await owner.fetchval(
        "INSERT INTO gateway.organizations (name) VALUES ($1) RETURNING id", name
    )
    project = await owner.fetchval(
        "INSERT INTO gateway.projects (organization_id, name) VALUES ($1, 'default') RETURNING id", organization
    )
    await _insert(
        owner, "usage_hourly", hour=NOW, organization_id=organization, project_id=project, key_id=uuid.uuid4(),
        model="m", tier="chat", requests=3, prompt_tokens=prompt_tokens, cached_tokens=prompt_tokens // 4,
        cache_write_tokens=0, completion_tokens=10, reasoning_tokens=0, amount_micro=1_000_000,
    )  # fmt: skip
    await owner.execute(
        "INSERT INTO gateway.budget_crossings VALUES ('organization', $1, '', '2026-11', 80, $1, 5000000, 4000000, $2)",
        organization,
        NOW,
    )
    await _insert(
        owner, "slo_minutes", minute=NOW, organization_id=organization, project_id=project, tier="chat", length="short",
        model="m", pool="p", side="baseline", version=1, **dict.fromkeys(COUNTS, 0) | {"counted": 4, "good": 3},
    )  # fmt: skip
    await _insert(
        owner, "prefix_shares", organization_id=organization, hour=NOW, model="m", endpoint="/v1/chat/completions",
        template="t", cause="", part="", requests=3, prompt_tokens=prompt_tokens, reusable_tokens=prompt_tokens // 2,
        cached_tokens=0, differing_token=None,
    )  # fmt: skip
    return organization


async def _insert(owner: asyncpg.Connection[Any], table: str, **row: Any) -> None:
    places = ", ".join(f"${number}" for number in range(1, len(row) + 1))
    await owner.execute(f"INSERT INTO gateway.{table} ({', '.join(row)}) VALUES ({places})", *row.values())


async def test_every_query_gives_the_chosen_organizations_and_no_others(fresh_postgres_url: str) -> None:
    owner = await asyncpg.connect(as_owner(fresh_postgres_url))
    reader = "slipstream_boards"
    try:
        await owner.execute(READER.replace(":'password'", "'of the test'"))
        one, two = await _used(owner, "One", 1_000), await _used(owner, "Two", 500)
        await _used(owner, "Three", 7)
        boards = await asyncpg.connect(as_owner(fresh_postgres_url).replace("//slipstream@", f"//{reader}@"))
        try:
            assert tenant.BOARD.variables[0].sql
            names = await boards.fetch(tenant.BOARD.variables[0].query)
            assert [row["__text"] for row in names] == ["One", "Three", "Two"]
            given = {}
            for title, query in QUERIES:
                rows = await boards.fetch(as_grafana_sends_it(query.statement, [one, two]))
                column = "metric" if query.shape == "time_series" else "organization"
                assert {row[column] for row in rows} == {"One", "Two"}, title
                given[title] = rows
            assert {row["metric"]: row["share"] for row in given["Cached"]} == {"One": 0.25, "Two": 0.25}
            assert {row["metric"]: row["tokens"] for row in given["Tokens"]} == {"One": 1_010, "Two": 510}
            assert {row["share"] for row in given["Good requests"]} == {0.75}
            assert {row["share"] for row in given["Reusable prompts"]} == {0.5}
            assert given["By model"][0]["organization"] == "One", "the most tokens first"
            for closed in ("api_keys", "usage_events", "request_traces", "audit_log", "webhooks"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await boards.fetch(f"SELECT * FROM gateway.{closed}")
            with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
                await boards.execute("CREATE TEMPORARY TABLE ours (a int)")
        finally:
            await boards.close()
    finally:
        await owner.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}")
        await owner.close()
