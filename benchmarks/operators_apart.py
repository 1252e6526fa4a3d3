"""Does an operator's heavy query delay customers' streams, with the control plane on the gateways' port and apart?

    python -m benchmarks.operators_apart [--rows 1_000_000] [--rounds 4] [--seconds 10] [--streams 8] [--pages 10]

A whole platform (gateway, router, a fake engine that sends a token every 20 ms) holds a ledger of so many rows and a
trace for every fifth. Customers stream while a person with open console pages looks at live data and another asks for
the most expensive reads there are. Rounds alternate, so that the machine's own noise meets all states: no operator;
the operator at the gateway's port; the operator at a `slipstream control` of the same deployment. The database is
shared in both. The operator's client, and the process apart, stand for other machines and run at the lowest priority.
Ends with one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aiohttp
import asyncpg
import uvloop

from benchmarks.admin_ledger import TRACES_SHARE, fill
from benchmarks.ample_limits import AMPLE_LIMITS
from tests.control.api.people import People
from tests.deployment import Deployment, deployment, fake_fleet, free_port, plain_environment
from tests.fakes.process import fake_engine
from tests.processes import answers, module_process

TOKEN = "operators"
INTERVAL_S = 0.02
TOKENS = 100
PROJECTS = 200
NONE, MOUNTED, APART = "no operator", "on the gateway's port", "apart"
HEAVY = (
    "/diagnosis?start={day}&end={to}",
    "/requests?limit=100&error_code=none_has_it&start={month}",
    "/usage?start={month}&end={to}&bucket=hour&group_by=key&group_by=model&limit=1000",
    "/slo",
    "/audit?limit=100&action=nothing.has_it",
)
"""Reads that aggregate or search a month. Two run at once, as many as one organization's pages send."""
LIVE = ("/fleet/live", "/requests?limit=50", "/slo", "/models", "/pools")
"""The reads of an open page."""
POLL_S = 1.0


async def stream(session: aiohttp.ClientSession, url: str, key: str, gaps_s: list[float]) -> None:
    """Send one streamed chat and add the times between its events to `gaps_s`."""
    body = {
        "model": "fake",
        "messages": [{"role": "user", "content": "Tell me."}],
        "max_tokens": TOKENS,
        "stream": True,
    }
    headers = {"authorization": f"Bearer {key}"}
    last_s, done = 0.0, False
    async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as response:
        async for line in response.content:
            if b'"content":"' in line:
                now_s = time.perf_counter()
                if last_s:
                    gaps_s.append(now_s - last_s)
                last_s = now_s
            done = done or line.startswith(b"data: [DONE]")
    if response.status != 200 or not done:
        raise AssertionError(f"a stream ended with {response.status} and without [DONE]")


async def listen(url: str, key: str, streams: int, seconds: float, gaps_s: list[float]) -> None:
    """Send chats for `seconds`, `streams` at a time."""
    until_s = time.perf_counter() + seconds

    async def one(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < until_s:
            await stream(session, url, key, gaps_s)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(session) for _ in range(streams)))


async def operate(url: str, secret: str, pages: int) -> None:
    """Send an operator's reads until killed. Prints a line for every answer: its status and kind."""
    to = datetime.now(UTC)
    moments = {"month": to - timedelta(days=29), "day": to - timedelta(days=1), "to": to}
    period = {name: at.strftime("%Y-%m-%dT%H:00:00Z") for name, at in moments.items()}
    heavy = [path.format(**period) for path in HEAVY]

    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {secret}"}) as session:

        async def get(path: str, kind: str) -> None:
            async with session.get(f"{url}/admin/v1{path}") as response:
                await response.read()
                if response.status != 200:
                    print(f"{response.status} {path}: {(await response.text())[:300]}", file=sys.stderr)
                print(response.status, kind, flush=True)

        async def ask(offset: int) -> None:
            while True:
                for path in (*heavy[offset:], *heavy[:offset]):
                    await get(path, "heavy")

        async def page(number: int) -> None:
            while True:
                await get(LIVE[number % len(LIVE)], "live")
                await asyncio.sleep(POLL_S)

        await asyncio.gather(ask(0), ask(1), *(page(number) for number in range(pages)))


@contextlib.asynccontextmanager
async def operating(url: str, secret: str, pages: int, answered: Counter[str]) -> AsyncIterator[None]:
    """Run a process that operates, from its first answer on. answered: counts the answers by `status kind`."""
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", "19", sys.executable, "-m", "benchmarks.operators_apart", "--operate", url, "--pages", str(pages),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "OPERATOR_KEY": secret},
    )  # fmt: skip
    assert process.stdout is not None
    output = process.stdout

    async def count() -> None:
        while line := (await output.readline()).decode().strip():
            answered[line] += 1

    await output.readline()
    counting = asyncio.create_task(count())
    try:
        yield
    finally:
        process.kill()
        await process.wait()
        await counting


async def measure(platform: Deployment, apart: str, secret: str, options: argparse.Namespace) -> dict[str, object]:
    """Run all rounds and print their figures; returns the JSON object."""
    key = await platform.make_key(*AMPLE_LIMITS)
    at = {MOUNTED: platform.url, APART: apart}
    gaps_s: dict[str, list[float]] = {state: [] for state in (NONE, MOUNTED, APART)}
    answered: dict[str, Counter[str]] = {state: Counter() for state in gaps_s}
    await listen(platform.url, key, options.streams, 2, [])
    for number in range(options.rounds):
        for state, into in gaps_s.items():
            busy = (
                operating(at[state], secret, options.pages, answered[state])
                if state in at
                else contextlib.nullcontext()
            )
            async with busy:
                await listen(platform.url, key, options.streams, options.seconds, into)
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    figures: dict[str, object] = {}
    for state, found in gaps_s.items():
        cuts = statistics.quantiles(found, n=1_000)
        p50_ms, p99_ms, p999_ms = (round(cuts[at] * 1e3, 2) for at in (499, 989, 998))
        print(
            f"{state:22} gap p50 {p50_ms:6.2f} p99 {p99_ms:7.2f} p99.9 {p999_ms:7.2f} max {max(found) * 1e3:7.1f} ms"
            f" of {len(found):,} gaps; the operator's answers: {dict(sorted(answered[state].items()))}"
        )
        figures[state] = {"p50_ms": p50_ms, "p99_ms": p99_ms, "p999_ms": p999_ms, "max_ms": round(max(found) * 1e3, 1)}
    return figures


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the ledger")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each state in a round")
    parser.add_argument("--streams", type=int, default=8, help="at a time")
    parser.add_argument("--pages", type=int, default=10, help="open pages of the console")
    parser.add_argument("--operate", metavar="URL", help="only be the operator there, with OPERATOR_KEY's key")
    options = parser.parse_args()
    if options.operate:
        await operate(options.operate, os.environ["OPERATOR_KEY"], options.pages)
        return
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        engine = await enter(fake_engine(token=TOKEN))
        await engine.control(inter_token_s=INTERVAL_S, tokens=TOKENS)
        platform = await enter(deployment(environment=fake_fleet(engine.url), token=TOKEN, on_disk=True))
        began_s = time.perf_counter()
        await fill(platform.database_url, options.rows, PROJECTS)
        print(f"filled {options.rows:,} rows in {time.perf_counter() - began_s:.0f} s", file=sys.stderr)
        database = await asyncpg.connect(platform.database_url)
        stack.push_async_callback(database.close)
        session = await enter(aiohttp.ClientSession())
        people = People(session, platform.url, database, (platform.data / "pepper").read_bytes().strip())
        await people.move_in()
        port = free_port()
        decided = str(next((platform.data / "run").glob("settings.toml"), platform.data))
        process = await enter(
            module_process(
                "slipstream", "control", "--config", decided, "--port", str(port), environment=plain_environment()
            )
        )
        await answers(session, f"http://127.0.0.1:{port}/readyz", process)
        os.setpriority(os.PRIO_PROCESS, process.pid, 19)
        secret = (await people.operator()).secret
        figures = await measure(platform, f"http://127.0.0.1:{port}", secret, options)
    print(
        json.dumps(
            {"rows": options.rows, "traces": options.rows // TRACES_SHARE, "streams": options.streams, **figures}
        )
    )


if __name__ == "__main__":
    uvloop.run(main())
