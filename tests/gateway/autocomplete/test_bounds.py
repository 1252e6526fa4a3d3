"""A gateway whose editors may report almost nothing, and that writes it only when it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg
import msgspec

from contracts.dated_request_id import mint as mint_request_id
from gateway.auth.keys import mint
from tests.control.api.lone_gateway import LoneGateway, lone_gateway

SLOW: dict[str, Any] = {
    "SLIPSTREAM_GATEWAY__AUTOCOMPLETE__EVENTS_PER_SECOND": "0.001",
    "SLIPSTREAM_GATEWAY__AUTOCOMPLETE__FLUSH_S": "60",
}
TRACE = """
INSERT INTO gateway.request_traces (request_id, organization_id, project_id, status, total_ms, phases_ms)
SELECT $1, organization_id, id, 200, 1, '{}' FROM gateway.projects WHERE id = $2
"""


async def new_key(database: asyncpg.Connection[Any], gateway: LoneGateway) -> tuple[str, UUID]:
    """A key's secret, and its project."""
    minted = mint(gateway.pepper)
    project = await database.fetchval(
        "WITH made AS (INSERT INTO gateway.organizations (name) VALUES ('o') RETURNING id)"
        " INSERT INTO gateway.projects (organization_id, name) SELECT id, 'p' FROM made RETURNING id"
    )
    await database.execute(
        "INSERT INTO gateway.api_keys (project_id, name, hash, display) VALUES ($1, 'k', $2, $3)",
        project,
        minted.hash,
        minted.display,
    )
    return minted.secret, project


async def test_one_projects_flood_is_refused_alone_and_a_stop_loses_no_report(
    fresh_postgres_url: str, valkey_url: str
) -> None:
    database = await asyncpg.connect(fresh_postgres_url)
    async with lone_gateway(fresh_postgres_url, valkey_url, **SLOW) as gateway, aiohttp.ClientSession() as session:

        async def report(secret: str, path: str, body: Mapping[str, object]) -> aiohttp.ClientResponse:
            headers = {"authorization": f"Bearer {secret}"}
            async with session.post(gateway.url + path, data=msgspec.json.encode(body), headers=headers) as response:
                await response.read()
                return response

        projects: dict[UUID, str] = {}
        for _ in range(2):
            secret, project = await new_key(database, gateway)
            request_id = projects[project] = mint_request_id()
            await database.execute(TRACE, request_id, project)
            completion = f"cmpl-{request_id.removeprefix('req_')}"
            assert (await report(secret, f"/v1/completions/{completion}/events", {"type": "view"})).status == 202
            for path, body in (
                (f"/v1/completions/{completion}/events", {"type": "select"}),
                ("/v1/events", {"type": "select", "completion_id": completion}),
            ):
                refused = await report(secret, path, body)
                assert refused.status == 429
                assert 900 < int(refused.headers["retry-after"]) <= 1_000
        assert not await database.fetchval("SELECT count(*) FROM gateway.completion_events")
    stored = await database.fetch("SELECT project_id, type, request_id FROM gateway.completion_events")
    assert {(row["project_id"], row["request_id"], row["type"]) for row in stored} == {
        (project, request_id, "view") for project, request_id in projects.items()
    }
    await database.close()
