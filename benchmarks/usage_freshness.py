"""How long after a request ended does the console's open usage page count it?

    python -m benchmarks.usage_freshness [--requests 30]

A deployment as `up` makes it with its default settings, in front of a fake engine; a real Chromium with the usage page
open. One request at a time, at a random moment of the roll-up's period: the seconds from its answer's last byte until
the page's own figure has grown, and until the roll-up's table has it, asked every 50 ms: no page can be faster. Ends
with one JSON line: both at p50 and p95, and the page over the roll-up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import time
from collections.abc import AsyncIterator

import aiohttp
from playwright.async_api import Browser, Page, async_playwright

from benchmarks.needs import program
from tests.console.conftest import ARGUMENTS, CHAT_TOKENIZER, EMAIL, LINK, PASSWORD, TOKEN
from tests.console.pages import OPERATORS_HOME, Console, seen_by
from tests.deployment import Deployment, deployment, fake_fleet
from tests.fakes.process import FakeEngineProcess, fake_engine

GOAL_S = 5.0
LONGEST_PAUSE_S = 4.0
LOOK_EVERY_S = 0.05
BODY = {"model": "fake", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8}
SHOWS = "number => document.querySelector('dl').innerText.match(/Requests\\s+([\\d,]+)/)?.[1] === String(number)"


async def main(requests: int) -> None:
    """Send, watch, print."""
    chromium = program("chromium")
    page_s, rolled_up_s = [], []
    pauses = random.Random(7)
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(fake_engine(token=TOKEN))
        running, console = await signed_in(stack, chromium, engine)
        async with running.database() as database:
            organization = await database.fetchval(
                "SELECT organization_id FROM gateway.projects JOIN gateway.api_keys ON project_id = projects.id LIMIT 1"
            )
        await console.go(f"/org/{organization}/usage?figure=requests")
        http = await stack.enter_async_context(aiohttp.ClientSession())
        for number in range(1, requests + 1):
            await asyncio.sleep(pauses.uniform(0, LONGEST_PAUSE_S))
            await _ask(http, running)
            ended_s = time.perf_counter()
            shown, rolled_up = await asyncio.gather(
                _shown(console.page, number, ended_s), _rolled_up(running, number, ended_s)
            )
            page_s.append(shown)
            rolled_up_s.append(rolled_up)
            print(f"request {number:>3}: page {shown:5.2f} s, roll-up {rolled_up:5.2f} s", flush=True)
    line = {
        "requests": requests,
        "page_p50_s": round(statistics.median(page_s), 2),
        "page_p95_s": round(_p95(page_s), 2),
        "page_longest_s": round(max(page_s), 2),
        "rolled_up_p50_s": round(statistics.median(rolled_up_s), 2),
        "rolled_up_p95_s": round(_p95(rolled_up_s), 2),
        "page_over_rolled_up_p50": round(statistics.median(page_s) / statistics.median(rolled_up_s), 2),
        "goal_s": GOAL_S,
        "within_goal": sum(each <= GOAL_S for each in page_s) / requests,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(line))


async def signed_in(
    stack: contextlib.AsyncExitStack, chromium: str, engine: FakeEngineProcess
) -> tuple[Deployment, Console]:
    """Start a deployment in front of this engine; returns it, and a console where its first account is signed in."""
    fleet = fake_fleet(engine.url, tokenizer=CHAT_TOKENIZER, context_tokens=20_000)
    running = await stack.enter_async_context(deployment(environment=fleet, token=TOKEN, on_disk=True))
    browser = await stack.enter_async_context(_chromium(chromium))
    console = await stack.enter_async_context(seen_by(browser, running.url))
    link = LINK.search(running.output)
    assert link is not None
    page = console.page
    await page.goto(link.group())
    await page.get_by_label("Email").fill(EMAIL)
    await page.get_by_label("Password", exact=True).fill(PASSWORD)
    await page.get_by_label("Repeat the password").fill(PASSWORD)
    await page.get_by_role("button", name="Begin").click()
    await page.wait_for_url(OPERATORS_HOME)
    return running, console


@contextlib.asynccontextmanager
async def _chromium(path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        started = await driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        await started.close()


async def _ask(http: aiohttp.ClientSession, running: Deployment) -> None:
    headers = {"Authorization": f"Bearer {running.key}"}
    async with http.post(f"{running.url}/v1/chat/completions", json=BODY, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()


async def _shown(page: Page, number: int, since_s: float) -> float:
    """Seconds until the page shows `number` requests."""
    await page.wait_for_function(SHOWS, arg=number, timeout=60_000, polling=20)
    return time.perf_counter() - since_s


async def _rolled_up(running: Deployment, number: int, since_s: float) -> float:
    """Seconds until the roll-up's table has `number` requests."""
    async with running.database() as database:
        while await database.fetchval("SELECT sum(requests) FROM gateway.organization_usage_daily") != number:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_EVERY_S)  # another process' state
    return time.perf_counter() - since_s


def _p95(values: list[float]) -> float:
    return sorted(values)[max(0, round(len(values) * 0.95) - 1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=30)
    asyncio.run(main(parser.parse_args().requests))
