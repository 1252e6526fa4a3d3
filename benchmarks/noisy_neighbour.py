"""What a tenant who sends the worst bodies as fast as it can does to another's streams.

A whole platform (gateway, router, the embedded engine with the shipped chat model) serves one tenant's chats while
another sends the hostile corpus of `tests/hostile` from 32 connections. Rounds alternate so that the machine's own
noise meets all of them: alone; beside the same connections whose requests are refused at once (401: what the bare
competition for cores and bytes costs); beside the corpus. The load generators stand for other machines, so they run at
the lowest priority. Run: `python -m benchmarks.noisy_neighbour` [--rounds 4] [--seconds 15] [--streams 2]. The last
line is JSON; the goal is at most 1.5, 2 and 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import itertools
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import msgspec
import uvloop

from benchmarks.ample_limits import AMPLE_LIMITS
from tests.deployment import Deployment, deployment
from tests.hostile.corpus import MEGABYTE, Hostile, crooked, long, texts

CONNECTIONS = 32
MODEL, CODE_MODEL = "slipstream-chat", "slipstream-code"
TOKENS = 48
QUIET, CONTROL, HOSTILE = "alone", "beside refusals", "beside the corpus"


class Felt(msgspec.Struct):
    """The times of the other tenant's streams."""

    ttft_s: list[float] = []
    gap_s: list[float] = []
    """The time between one token's event and the next."""
    failed: int = 0


async def stream(session: aiohttp.ClientSession, url: str, key: str, felt: Felt) -> None:
    """Send one streamed chat and add its times to `felt`."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Write a short poem about the sea and the wind, please."}],
        "max_tokens": TOKENS,
        "stream": True,
    }
    began_s = last_s = time.perf_counter()
    seen, done, rest = 0, False, b""
    async with session.post(
        f"{url}/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"}
    ) as response:
        async for line in response.content:
            if b'"content":"' in line and b'"content":""' not in line:
                now_s = time.perf_counter()
                (felt.gap_s if seen else felt.ttft_s).append(now_s - last_s)
                last_s, seen = now_s, seen + 1
            done = done or line.startswith(b"data: [DONE]")
            rest = line
    if response.status != 200 or not done or last_s == began_s:
        raise aiohttp.ClientError(f"{response.status}: {rest[:300]!r}")


async def listen(url: str, key: str, streams: int, seconds: float, felt: Felt) -> None:
    """Send chats for `seconds`, `streams` at a time."""
    until_s = time.perf_counter() + seconds

    async def one(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < until_s:
            try:
                await stream(session, url, key, felt)
            except aiohttp.ClientError as error:
                print(f"failed: {error!r}", file=sys.stderr)
                felt.failed += 1

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(one(session) for _ in range(streams)))


def bodies() -> Iterator[Hostile]:
    """The corpus, with smaller bodies, as 32 of them are in flight at a time."""
    yield from texts(MODEL, CODE_MODEL, MEGABYTE)
    yield from long(MODEL, CODE_MODEL, 2 * MEGABYTE)
    yield from crooked(MODEL, CODE_MODEL, 2 * MEGABYTE)


async def flood(url: str, key: str) -> None:
    """Send the corpus until killed; prints a line for every answer's status."""
    endless = itertools.cycle(list(bodies()))

    async def one(session: aiohttp.ClientSession) -> None:
        for hostile in endless:
            try:
                async with session.post(
                    url + hostile.path, data=io.BytesIO(hostile.body), headers={"authorization": f"Bearer {key}"}
                ) as response:
                    await response.read()
                    print(response.status, flush=True)
            except aiohttp.ClientError:
                # the server closed the connection while it still received the refused body
                print(0, flush=True)

    timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        await asyncio.gather(*(one(session) for _ in range(CONNECTIONS)))


@contextlib.asynccontextmanager
async def flooding(url: str, key: str, statuses: dict[int, int]) -> AsyncIterator[None]:
    """Run a process that floods, from its first answer on. statuses: counts the answers by status."""
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", "19", sys.executable, "-m", "benchmarks.noisy_neighbour", "--flood", url,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "FLOOD_KEY": key},
    )  # fmt: skip
    assert process.stdout is not None

    async def count() -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            statuses[int(line)] = statuses.get(int(line), 0) + 1

    await process.stdout.readline()
    counting = asyncio.create_task(count())
    try:
        yield
    finally:
        process.kill()
        await process.wait()
        await counting


async def measure(platform: Deployment, arguments: argparse.Namespace) -> dict[str, object]:
    """Run all rounds and print their figures; returns the JSON object."""
    key = await platform.make_key(*AMPLE_LIMITS)
    noisy = await platform.make_key("--organization", "noisy", *AMPLE_LIMITS)
    keys = {CONTROL: noisy[:-1] + ("a" if noisy[-1] != "a" else "b"), HOSTILE: noisy}
    felt = {state: Felt() for state in (QUIET, CONTROL, HOSTILE)}
    statuses: dict[str, dict[int, int]] = {CONTROL: {}, HOSTILE: {}}
    await listen(platform.url, key, arguments.streams, 3, Felt())
    for number in range(arguments.rounds):
        for state in felt:
            noise = flooding(platform.url, keys[state], statuses[state]) if state in keys else contextlib.nullcontext()
            async with noise:
                await listen(platform.url, key, arguments.streams, arguments.seconds, felt[state])
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    p99 = {state: (p99_of(one.gap_s), p99_of(one.ttft_s)) for state, one in felt.items()}
    for state, one in felt.items():
        gap_s, ttft_s = p99[state]
        print(
            f"{state:18} between tokens p50 {statistics.median(one.gap_s) * 1e3:7.2f} p99 {gap_s * 1e3:8.2f} ms, first"
            f" token p50 {statistics.median(one.ttft_s) * 1e3:7.2f} p99 {ttft_s * 1e3:8.2f} ms, {len(one.ttft_s)}"
            f" streams, {one.failed} failed, answers to the noise {dict(sorted(statuses.get(state, {}).items()))}"
        )
    (quiet_gap, quiet_ttft), (control_gap, control_ttft), (gap, ttft) = p99.values()
    return {
        "itl_p99_ratio": round(gap / quiet_gap, 2),
        "ttft_p99_ratio": round(ttft / quiet_ttft, 2),
        "failed": sum(one.failed for one in felt.values()),
        "control_itl_p99_ratio": round(control_gap / quiet_gap, 2),
        "control_ttft_p99_ratio": round(control_ttft / quiet_ttft, 2),
        "hostile_server_errors": sum(count for status, count in statuses[HOSTILE].items() if status >= 500),
    }


def p99_of(values: list[float]) -> float:
    """The 99th percentile of at least two values."""
    return statistics.quantiles(values, n=100)[98]


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each state in a round")
    parser.add_argument("--streams", type=int, default=2, help="of the other tenant, at a time")
    parser.add_argument("--flood", metavar="URL", help="only send the corpus there, with FLOOD_KEY's key")
    arguments = parser.parse_args()
    if arguments.flood:
        await flood(arguments.flood, os.environ["FLOOD_KEY"])
        return
    async with deployment(on_disk=True) as platform:
        figures = await measure(platform, arguments)
    print(msgspec.json.encode(figures).decode())


if __name__ == "__main__":
    uvloop.run(main())
