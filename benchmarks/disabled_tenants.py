"""How soon does every gateway refuse the keys of a project that was disabled?

    python -m benchmarks.disabled_tenants [--rounds 20] [--check]

Two gateway processes on one database, both with the key in memory. The clock runs from the admin API's answer to the
first refusal of each gateway. The comparison is polling the table once a second, half a second on average. Ends with
one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import time

import aiohttp
import asyncpg

from benchmarks.bounds import add_check, tell
from benchmarks.scratch_servers import scratch_servers
from tests.control.api.lone_gateway import lone_gateway
from tests.control.api.people import People

PROMISE_MS = 1_000.0
POLLING_MS = 500.0


async def main(rounds: int) -> list[str]:
    """Measure and print; returns what was missed."""
    async with contextlib.AsyncExitStack() as stack:
        url, valkey = await stack.enter_async_context(scratch_servers())
        first = await stack.enter_async_context(lone_gateway(url, valkey))
        second = await stack.enter_async_context(lone_gateway(url, valkey, pepper=first.pepper))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        database = await asyncpg.connect(url)
        stack.push_async_callback(database.close)
        people = People(session, first.url, database, first.pepper)
        await people.move_in()
        owner = await people.owner()
        project = await owner.make(f"/organizations/{people.organizations['ours']}/projects", {"name": "p"})
        secret = (await owner.make(f"/projects/{project['id']}/keys", {"name": "k"}))["secret"]

        async def until(base: str, status: int) -> float:
            while True:
                async with session.get(f"{base}/v1/models", headers={"authorization": f"Bearer {secret}"}) as response:
                    if response.status == status:
                        return time.perf_counter()

        took_ms = []
        for _ in range(rounds):
            await asyncio.gather(until(first.url, 200), until(second.url, 200))
            await owner.change(f"/projects/{project['id']}", {"disabled": True})
            changed_s = time.perf_counter()
            seen_s = await asyncio.gather(until(first.url, 403), until(second.url, 403))
            took_ms += [(seen - changed_s) * 1e3 for seen in seen_s]
            await owner.change(f"/projects/{project['id']}", {"disabled": False})
    p50, worst = statistics.median(took_ms), max(took_ms)
    print(f"{rounds} times on 2 gateways: p50 {p50:.1f} ms, worst {worst:.1f} ms; promised {PROMISE_MS:.0f} ms")
    line = {
        "refusals": len(took_ms),
        "p50_ms": round(p50, 1),
        "worst_ms": round(worst, 1),
        "promise_ms": PROMISE_MS,
        "polling_ratio": round(POLLING_MS / p50, 1),
        "kept": worst <= PROMISE_MS,
    }
    print(json.dumps(line))
    return [] if worst <= PROMISE_MS else [f"refused {worst:.0f} ms after being disabled; promised {PROMISE_MS:.0f} ms"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    add_check(parser)
    options = parser.parse_args()
    tell(asyncio.run(main(options.rounds)), options.check)
