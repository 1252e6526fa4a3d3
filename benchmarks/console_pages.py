"""How long do the console's pages take to load their data from a large deployment?

    python -m benchmarks.console_pages [--rows 10_000_000] [--projects 1000] [--loads 20] [--page /org] [--keep FOLDER]

Fills a PostgreSQL of its own (2 GB of shared buffers) with 90 days of usage (`console/ledger.py`; the roll-ups are the
product's), starts a gateway and a router on it, signs in as an owner of the large organization and as an operator, and
loads every page in every state that `console/requests.py` names: first the session, then all requests of the page, as a
browser sends them, six requests at a time and two reports at a time. A page's time ends with its last answer and does
not include later work in the browser. All pages are loaded once before, and then in turn, so that slow minutes of the
machine affect all of them. --page: only routes with this prefix. --keep: the filled database stays there for the next
run. Ends with one JSON line. The reference is `GET /admin/v1/me`, which queries only the session.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from benchmarks.console.ledger import fill
from benchmarks.console.place import PEPPER, filled, gateway_and_router, servers
from benchmarks.console.quality import furnish
from benchmarks.console.requests import Ask, View, pages
from storage.roles import Role
from tests.control.console.browser import Browser, Town

GOAL_P95_MS = 300.0
CONNECTIONS, REPORTS = 6, 2
"""Connections of a browser to one host; reports of a page at a time (console/src/api/reports.ts)."""
REPORT_PATHS = (
    "usage", "autocomplete", "diagnosis", "prefix-contract", "prefix-totals", "slo", "goodput", "pools", "serving",
    "shadow", "requests", "audit", "completion-texts", "prefix-texts", "events",
)  # fmt: skip
LARGEST = 5
"""Like `MAX_SERIES` of console/src/pages/tenants/usage-series.ts."""
REFERENCE = View("", (Ask("/admin/v1/me"),))


class Loader:
    """Loads views as one browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.asked: dict[str, list[float]] = defaultdict(list)
        """Milliseconds of each request, by its path."""
        self.refused: dict[str, int] = {}
        """Last status of each request that was not answered."""

    async def load(self, view: View) -> float:
        """Milliseconds until all is answered."""
        connections, reports = asyncio.Semaphore(CONNECTIONS), asyncio.Semaphore(REPORTS)

        async def follow(each: Ask) -> None:
            await self._answered(each, connections, reports)
            await asyncio.gather(*map(follow, each.then))

        began_s = time.perf_counter()
        await self._answered(Ask("/console/api/session"), connections, reports)
        await asyncio.gather(*map(follow, view.asks))
        return (time.perf_counter() - began_s) * 1e3

    async def _answered(self, each: Ask, connections: asyncio.Semaphore, reports: asyncio.Semaphore) -> None:
        report = _is_report(each.path)
        cursor: str | None = None
        while True:
            path = each.path if cursor is None else f"{each.path}&cursor={cursor}"
            async with reports if report else contextlib.nullcontext(), connections:
                began_s = time.perf_counter()
                answer = await self._browser.ask("GET", path)
                self.asked[each.path].append((time.perf_counter() - began_s) * 1e3)
            if answer.status != 200:
                self.refused[each.path] = answer.status
                return
            cursor = answer.body.get("next_cursor") if each.every_page else None
            if cursor is None:
                return


def _is_report(path: str) -> bool:
    *_, before, last = path.split("?")[0].split("/")
    return last in REPORT_PATHS or before == "invoices"


async def main(rows: int, projects: int, loads: int, begins: str, kept: Path | None) -> None:
    """Fill, measure and print."""
    async with contextlib.AsyncExitStack() as stack:
        url, valkey = await stack.enter_async_context(servers(kept))
        if not await filled(url):
            await fill(url, rows, projects)
        database = await asyncpg.connect(url)
        stack.push_async_callback(database.close)
        gateway = await stack.enter_async_context(gateway_and_router(url, valkey))
        town = await _town(database, gateway.url)
        tenant = Loader(await stack.enter_async_context(town.signed_in(Role.OWNER, "large")))
        operator = Loader(await stack.enter_async_context(town.signed_in(Role.OWNER, "operator")))
        ids = await _ids(database, url, town.organizations["large"])
        # for a kept database, the time when it was filled, so that its last hour is as full as then
        now = await database.fetchval("SELECT max(closed_at) FROM gateway.usage_events")
        wanted = {route: views for route, views in pages(ids, now).items() if route.startswith(begins)}
        times = await measured({**wanted, "reference": [REFERENCE]}, tenant, operator, loads)
        events = await database.fetchval("SELECT count(*) FROM gateway.usage_events")
        report(times, tenant, operator, events, projects)


async def measured(
    wanted: dict[str, list[View]], tenant: Loader, operator: Loader, loads: int
) -> dict[tuple[str, str], list[float]]:
    """Milliseconds of each load, by route and search."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for turn in range(loads + 1):
        for route, views in wanted.items():
            for view in views:
                took_ms = await (operator if view.operator else tenant).load(view)
                if turn:
                    times[route, view.search].append(took_ms)
                else:
                    print(f"once: {took_ms:>8.0f} ms  {route}?{view.search}", flush=True)
    return times


def report(
    times: dict[tuple[str, str], list[float]], tenant: Loader, operator: Loader, events: int, projects: int
) -> None:
    """A line for each state of each page, the slowest requests, and the result."""
    found = {of: (statistics.median(each), _p95(each)) for of, each in times.items()}
    print(f"{'page':<100}{'p50 ms':>9}{'p95 ms':>9}")
    for (route, search), (p50, p95) in found.items():
        print(f"{route + ('?' + search if search else ''):<100}{p50:>9.1f}{p95:>9.1f}")
    asked = {path: _p95(each) for loader in (tenant, operator) for path, each in loader.asked.items()}
    refused = tenant.refused | operator.refused
    for path, status in refused.items():
        print(f"refused with {status}: {path}")
    print("slowest requests, p95 ms")
    for path in sorted(asked, key=asked.__getitem__, reverse=True)[:20]:
        print(f"{asked[path]:>9.1f}  {path}")
    reference = found.pop(("reference", ""))[1]
    worst = max(found, key=lambda of: found[of][1])
    by_page: dict[str, float] = {}
    for (route, _), (_, p95) in found.items():
        by_page[route] = round(max(by_page.get(route, 0.0), p95), 1)
    line = {
        "rows": events,
        "projects": projects,
        "views": len(found),
        "worst_p95_ms": round(found[worst][1], 1),
        "worst_page": "?".join(part for part in worst if part),
        "views_over_goal": sum(p95 >= GOAL_P95_MS for _, p95 in found.values()),
        "refused": len(refused),
        "goal_met": found[worst][1] < GOAL_P95_MS and not refused,
        "reference_p95_ms": round(reference, 1),
        "pages_p95_ms": by_page,
    }
    print(json.dumps(line))


def _p95(times: list[float]) -> float:
    return sorted(times)[max(0, round(len(times) * 0.95) - 1)]


async def _town(database: asyncpg.Connection[Any], url: str) -> Town:
    """People to sign in, of the operating and the large organization."""
    town = Town(database)
    town.pepper, town.url = PEPPER, url
    await town.prepare()
    town.organizations["operator"] = await database.fetchval(
        "SELECT id FROM gateway.organizations WHERE operator"
    ) or await database.fetchval("INSERT INTO gateway.organizations (name, operator) VALUES ('us', true) RETURNING id")
    town.organizations["large"] = await database.fetchval("SELECT id FROM gateway.organizations WHERE name = 'large'")
    return town


async def _ids(database: asyncpg.Connection[Any], url: str, organization: UUID) -> dict[str, str]:
    """One id of each kind; the project is the one with the most requests."""
    project = await database.fetchval("SELECT id FROM public.people WHERE large AND number = 0")
    largest = await database.fetch(
        "SELECT id, keys[1] AS key FROM public.people WHERE large ORDER BY number LIMIT $1", LARGEST
    )
    found = {
        "organizationId": organization,
        "largest_projects": ",".join(str(row["id"]) for row in largest),
        "largest_keys": ",".join(str(row["key"]) for row in largest),
        "projectId": project,
        "keyId": await database.fetchval("SELECT keys[1] FROM public.people WHERE large AND number = 0"),
        "smallId": await database.fetchval("SELECT id FROM gateway.organizations WHERE name = 'small 1'"),
        "requestId": await database.fetchval(
            "SELECT request_id FROM gateway.usage_events WHERE organization_id = $1 ORDER BY request_id DESC LIMIT 1",
            organization,
        ),
        **await furnish(database, url, organization),
    }
    return {name: str(value) for name, value in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--projects", type=int, default=1_000)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--page", default="/")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    asyncio.run(main(options.rows, options.projects, options.loads, options.page, options.keep))
