"""How soon does the console's first page show that a pool is dead, which error budget burns, and why?

    python -m benchmarks.alert_freshness [--requests-per-s 2]

A deployment as `up` makes it with its default settings, in front of one fake engine; a real Chromium on the first page;
a steady stream of chat requests. After the first minute the engine is killed: the seconds until the page says that its
pool serves nothing, that the error budget burns, and which kind of bad requests is the most frequent. The shortest
possible time to a burning budget is that to its tenth bad request (`MIN_BAD`), printed beside it. Ends with one JSON
line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time

import aiohttp

from benchmarks.needs import program
from benchmarks.usage_freshness import BODY, signed_in
from control.slo.budget import MIN_BAD
from tests.console.conftest import TOKEN
from tests.deployment import Deployment
from tests.fakes.process import fake_engine

GOAL_S = 60.0
HEALTHY_S = 60.0
WAIT_S = 300.0
SHOWN = {
    "dead_pool_s": "Pool fake serves nothing",
    "burning_budget_s": "The error budget for short chat prompts is burning",
    "reason_s": "Most frequent among the bad requests",
}


async def main(requests_per_s: float) -> None:
    """Send, kill, watch, print."""
    chromium = program("chromium")
    async with contextlib.AsyncExitStack() as stack:
        engine = await stack.enter_async_context(fake_engine(token=TOKEN))
        running, console = await signed_in(stack, chromium, engine)
        http = await stack.enter_async_context(aiohttp.ClientSession())
        failed_at_s: list[float] = []
        stack.push_async_callback(_cancelled, asyncio.create_task(_traffic(http, running, requests_per_s, failed_at_s)))
        await asyncio.sleep(HEALTHY_S)
        killed_s = time.perf_counter()
        engine.kill()
        page = console.page

        async def seen(text: str) -> float:
            await page.get_by_text(text).first.wait_for(timeout=WAIT_S * 1000)
            return round(time.perf_counter() - killed_s, 1)

        found = dict(zip(SHOWN, await asyncio.gather(*map(seen, SHOWN.values())), strict=True))
    tenth_s = round(sorted(failed_at_s)[MIN_BAD - 1] - killed_s, 1)
    line = {
        "requests_per_s": requests_per_s,
        **found,
        "tenth_bad_request_s": tenth_s,
        "reason_over_tenth_bad_request": round(found["reason_s"] / tenth_s, 1),
        "goal_s": GOAL_S,
        "within_goal": max(found.values()) <= GOAL_S,
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(line))


async def _traffic(http: aiohttp.ClientSession, running: Deployment, per_s: float, failed_at_s: list[float]) -> None:
    """Send requests at this rate. failed_at_s: collects the ends of failed ones."""

    async def ask() -> None:
        headers = {"Authorization": f"Bearer {running.key}"}
        async with http.post(f"{running.url}/v1/chat/completions", json=BODY, headers=headers) as answer:
            await answer.read()
            if answer.status >= 500:
                failed_at_s.append(time.perf_counter())

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(ask())
            await asyncio.sleep(1 / per_s)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests-per-s", type=float, default=2.0)
    asyncio.run(main(parser.parse_args().requests_per_s))
