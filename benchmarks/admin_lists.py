"""How long do list pages of the admin API take, over HTTP, with a large ledger behind them?

    python -m benchmarks.admin_lists [--rows 10_000_000] [--projects 1000] [--requests 60]

Fills a database of its own (generate_series, indices built afterwards), rolls it up, starts a gateway on it and
requests every list: the first page, the first page of 100, and a page far down the list. It compares them with a naive
twin, a page by count(*) and OFFSET over the same ledger, as in slow dashboards. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from typing import Any
from uuid import UUID

import aiohttp
import asyncpg

from benchmarks.admin_ledger import fill
from benchmarks.scratch_servers import scratch_servers
from control.api.operation import Operation
from control.api.schemas import PageQuery
from control.operations import OPERATIONS
from tests.control.api.lone_gateway import lone_gateway
from tests.control.api.people import Client, People

GOAL_P95_MS = 100.0
DEEP_PAGES = 9
PEPPER = b"b" * 64


async def main(rows: int, projects: int, requests: int) -> None:
    """Measure and print."""
    async with contextlib.AsyncExitStack() as stack:
        url, valkey = await stack.enter_async_context(scratch_servers())
        began_s = time.perf_counter()
        organization = await fill(url, rows, projects)
        print(f"filled {rows:,} rows in {time.perf_counter() - began_s:.0f} s")
        database = await asyncpg.connect(url)
        stack.push_async_callback(database.close)
        gateway = await stack.enter_async_context(lone_gateway(url, valkey, pepper=PEPPER))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        people = People(session, gateway.url, database, gateway.pepper)
        await people.move_in()
        people.organizations["ours"] = organization
        await report(await people.owner(), await people.operator(), database, organization, rows, projects, requests)


async def report(
    owner: Client,
    operator: Client,
    database: asyncpg.Connection[Any],
    organization: UUID,
    rows: int,
    projects: int,
    requests: int,
) -> None:
    """Measure every list, then the twin, and print the JSON line."""
    values = await _ids(database, organization)
    worst: dict[str, float] = {}
    print(f"{'list':<58}{'p50 ms':>9}{'p95 ms':>9}{'max ms':>9}")
    for operation in OPERATIONS:
        if operation.method != "GET" or operation.query is None or not issubclass(operation.query, PageQuery):
            continue
        client = operator if operation.operator_only else owner
        path = _path(operation, values)
        for name, query in (("first", ""), ("first 100", "?limit=100"), ("deep", await _deep(client, path))):
            if query is None:
                continue
            times = [await _timed(client, path + query) for _ in range(requests)]
            p50, p95 = statistics.median(times), sorted(times)[max(0, round(len(times) * 0.95) - 1)]
            print(f"{operation.path + ' ' + name:<58}{p50:>9.1f}{p95:>9.1f}{max(times):>9.1f}")
            worst[f"{operation.name} {name}"] = p95
    twin_ms = await _twin(database, organization)
    slowest = max(worst, key=worst.__getitem__)
    print(f"worst p95: {worst[slowest]:.1f} ms ({slowest}); goal {GOAL_P95_MS:.0f} ms")
    print(f"naive twin (count(*) and OFFSET over the same ledger): {twin_ms:.0f} ms for one page")
    line = {
        "rows": rows,
        "projects": projects,
        "lists": len(worst),
        "worst_p95_ms": round(worst[slowest], 1),
        "worst": slowest,
        "twin_ms": round(twin_ms, 1),
        "twin_ratio": round(twin_ms / worst[slowest], 1),
        "goal_met": worst[slowest] < GOAL_P95_MS,
    }
    print(json.dumps(line))


async def _ids(database: asyncpg.Connection[Any], organization: UUID) -> dict[str, object]:
    project = await database.fetchval(
        "SELECT id FROM gateway.projects WHERE organization_id = $1 ORDER BY name LIMIT 1", organization
    )
    webhook = await database.fetchval(
        "INSERT INTO gateway.webhooks (organization_id, url, description, secret)"
        " VALUES ($1, 'https://example.com', '', 'x') RETURNING id",
        organization,
    )
    return {"organization_id": organization, "project_id": project, "webhook_id": webhook}


def _path(operation: Operation, values: dict[str, object]) -> str:
    path = operation.path
    for name in operation.parameters:
        path = path.replace(f"{{{name}}}", str(values[name]))
    return path


async def _deep(client: Client, path: str) -> str | None:
    """A query for a page far down; None if the list is short."""
    cursor = ""
    for _ in range(DEEP_PAGES):
        page = await client.get(f"{path}?limit=100{cursor}")
        if not page["has_more"]:
            return None
        cursor = f"&cursor={page['next_cursor']}"
    return f"?limit=100{cursor}"


async def _timed(client: Client, path: str) -> float:
    began_s = time.perf_counter()
    await client.get(path)
    return (time.perf_counter() - began_s) * 1e3


async def _twin(database: asyncpg.Connection[Any], organization: UUID) -> float:
    began_s = time.perf_counter()
    await database.fetchval("SELECT count(*) FROM gateway.usage_events WHERE organization_id = $1", organization)
    await database.fetch(
        "SELECT * FROM gateway.usage_events WHERE organization_id = $1 ORDER BY closed_at DESC LIMIT 100 OFFSET 2000",
        organization,
    )
    return (time.perf_counter() - began_s) * 1e3


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--projects", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=60)
    options = parser.parse_args()
    asyncio.run(main(options.rows, options.projects, options.requests))
