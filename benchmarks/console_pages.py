"""How long do the console's pages wait for the admin API, with a large ledger behind it?

    python -m benchmarks.console_pages [--rows 10_000_000] [--projects 1000] [--rounds 40]

Fills a database of its own (`admin_ledger.py`), starts a gateway on it, and opens every page of the console's source in
a real Chromium, as an owner of the operating organization, to see what it asks for. Each page's requests are then asked
again and again as the page asked them: those that it sent at once at once, the others when the first are answered. A
page's time is that of the whole. Beside it, in the same rounds, `/admin/v1/me`: what any request costs here. Pages of
things that are not there (releases, runs) are not asked for and named. Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import statistics
import time
from uuid import UUID

import aiohttp
import asyncpg
import msgspec
from playwright.async_api import Page, Request, async_playwright

from benchmarks.admin_ledger import fill
from benchmarks.scratch_servers import scratch_servers
from tests.console.conftest import ARGUMENTS
from tests.console.pages import Console, seen_by
from tests.console.routes import address, routes
from tests.gateway.admin.lone_gateway import lone_gateway
from tests.gateway.console.browser import PASSWORD, Town

GOAL_P95_MS = 300.0


class Asked(msgspec.Struct):
    """One GET of a page, by milliseconds of the page's clock."""

    path: str
    began_ms: float
    ended_ms: float


async def main(rows: int, projects: int, rounds: int) -> None:
    """Measure and print."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no Chromium: apt-get install chromium")
    async with contextlib.AsyncExitStack() as stack:
        url, valkey = await stack.enter_async_context(scratch_servers())
        began_s = time.perf_counter()
        organization = await fill(url, rows, projects)
        print(f"filled {rows:,} rows in {time.perf_counter() - began_s:.0f} s", flush=True)
        database = await asyncpg.connect(url)
        stack.push_async_callback(database.close)
        town = Town(database)
        await town.found()
        gateway = await stack.enter_async_context(lone_gateway(url, valkey, pepper=town.pepper))
        town.url = gateway.url
        email = await town.account(organization="operator")
        driver = await stack.enter_async_context(async_playwright())
        browser = await driver.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        stack.push_async_callback(browser.close)
        console = await stack.enter_async_context(seen_by(browser, gateway.url))
        await sign_in(console, email)
        ids = await things(database, organization)
        pages, without = {}, []
        for route in routes():
            place = address(route, ids)
            if place is None:
                without.append(route)
            else:
                pages[route] = waves(await watched(console, place))
        cookies = {each["name"]: each["value"] for each in await console.page.context.cookies()}
        async with aiohttp.ClientSession(gateway.url, cookies=cookies) as http:
            times, any_ms = await repeated(http, pages, rounds)
    report(times, any_ms, pages, without, rows, projects)


async def sign_in(console: Console, email: str) -> None:
    """By the page."""
    await console.page.goto(f"{console.url}/console/sign-in")
    await console.page.get_by_label("Email").fill(email)
    await console.page.get_by_label("Password", exact=True).fill(PASSWORD)
    await console.page.get_by_role("button", name="Sign in", exact=True).click()
    await console.page.wait_for_url("**/console/org/**")


async def things(database: asyncpg.Connection[asyncpg.Record], organization: UUID) -> dict[str, str]:
    """Ids for addresses."""
    row = await database.fetchrow(
        "SELECT project_id, key_id, request_id FROM gateway.request_traces WHERE organization_id = $1 LIMIT 1",
        organization,
    )
    assert row is not None
    webhook = await database.fetchval(
        "INSERT INTO gateway.webhooks (organization_id, url, description, secret)"
        " VALUES ($1, 'https://example.com', '', 'x') RETURNING id",
        organization,
    )
    return {
        "organizationId": str(organization),
        "projectId": str(row["project_id"]),
        "keyId": str(row["key_id"]),
        "requestId": row["request_id"],
        "webhookId": str(webhook),
        "version": "1",
        "pool": "one",
    }


async def watched(console: Console, place: str) -> list[Asked]:
    """What a page asks the admin API for, until nothing is missing on it."""
    asked: dict[Request, Asked] = {}
    began_s = time.perf_counter()

    def now_ms() -> float:
        return (time.perf_counter() - began_s) * 1e3

    def begun(request: Request) -> None:
        path = request.url.removeprefix(console.url)
        if request.method == "GET" and path.startswith("/admin/v1/") and "/events" not in path:
            asked[request] = Asked(path, now_ms(), float("inf"))

    def over(request: Request) -> None:
        if request in asked:
            asked[request].ended_ms = now_ms()

    page: Page = console.page
    page.on("request", begun)
    page.on("requestfinished", over)
    page.on("requestfailed", over)
    try:
        await console.go(place)
        async with asyncio.timeout(60):
            while any(each.ended_ms == float("inf") for each in asked.values()):  # noqa: ASYNC110  the browser's doing
                await asyncio.sleep(0.01)
    finally:
        page.remove_listener("request", begun)
        page.remove_listener("requestfinished", over)
        page.remove_listener("requestfailed", over)
    return list(asked.values())


def waves(asked: list[Asked]) -> list[list[str]]:
    """What was asked at once: a request that began when another had been answered may have waited for it."""
    found: list[list[str]] = []
    answered_ms = float("-inf")
    for each in sorted(asked, key=lambda one: one.began_ms):
        if not found or each.began_ms >= answered_ms:
            found.append([])
            answered_ms = float("inf")
        found[-1].append(each.path)
        answered_ms = min(answered_ms, each.ended_ms)
    return found


async def repeated(
    http: aiohttp.ClientSession, pages: dict[str, list[list[str]]], rounds: int
) -> tuple[dict[str, list[float]], list[float]]:
    """Milliseconds of each page in each round, and of the smallest request. The first round is not counted."""
    times: dict[str, list[float]] = {route: [] for route in pages}
    any_ms: list[float] = []
    for number in range(rounds + 1):
        for route, parts in pages.items():
            took_ms = 0.0
            for wave in parts:
                began_s = time.perf_counter()
                await asyncio.gather(*(get(http, path) for path in wave))
                took_ms += (time.perf_counter() - began_s) * 1e3
            if number:
                times[route].append(took_ms)
        began_s = time.perf_counter()
        await get(http, "/admin/v1/me")
        if number:
            any_ms.append((time.perf_counter() - began_s) * 1e3)
    return times, any_ms


async def get(http: aiohttp.ClientSession, path: str) -> None:
    """Ask and read all."""
    async with http.get(path) as answer:
        body = await answer.read()
    # a gateway without a router says so of the live fleet
    if answer.status >= 400 and not (answer.status == 503 and path.startswith("/admin/v1/fleet/live")):
        raise RuntimeError(f"{path}: {answer.status} {body[:300]!r}")


def report(
    times: dict[str, list[float]],
    any_ms: list[float],
    pages: dict[str, list[list[str]]],
    without: list[str],
    rows: int,
    projects: int,
) -> None:
    """A line for each page, then the line."""
    p95_ms = {}
    print(f"{'page':<56}{'requests':>9}{'p50 ms':>9}{'p95 ms':>9}")
    for route, took in times.items():
        p95_ms[route] = sorted(took)[max(0, round(len(took) * 0.95) - 1)]
        requests = sum(len(wave) for wave in pages[route])
        print(f"{route:<56}{requests:>9}{statistics.median(took):>9.1f}{p95_ms[route]:>9.1f}")
    print(f"without things to show, not asked: {', '.join(without) or 'none'}")
    worst = max(p95_ms, key=p95_ms.__getitem__)
    line = {
        "rows": rows,
        "projects": projects,
        "pages": len(p95_ms),
        "worst_p95_ms": round(p95_ms[worst], 1),
        "worst_page": worst,
        "over_goal": [route for route, ms in p95_ms.items() if ms > GOAL_P95_MS],
        "any_request_p95_ms": round(sorted(any_ms)[max(0, round(len(any_ms) * 0.95) - 1)], 1),
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--projects", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    asyncio.run(main(options.rows, options.projects, options.rounds))
