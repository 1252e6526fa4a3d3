"""What one gateway and two gateways on one port cost, by process, and what a lease costs a router.

    python -m benchmarks.several_gateways [--rounds 5] [--requests 1600] [--leases 20000]

Two whole deployments (keys, limits, journal, ledger and router are on) stand in front of fake engines and receive
requests in turn: one has one gateway, the other two that share a port. CPU is each process' own, from
/proc/PID/task/*/schedstat, so it means the same where all cores are busy; a gateway's other threads are the journal's
and asyncio's. The supervisor, the client and the engine are left out. Then a router, in front of eight engines that
only answer polls, grants leases to one client of this process: over one connection, 256 at a time, with prompts of
2,000 tokens, without a queue. One core of a process carries a million divided by its µs per second. Ends with one JSON
line; `rise` is the cost of all processes with two gateways divided by that with one, over the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import msgspec
import uvloop
from aiohttp import web

from benchmarks.ample_limits import AMPLE_LIMITS
from benchmarks.gateway_in_turn import PROMPT
from benchmarks.gateway_overhead import TOKEN, Client, closed_loop
from benchmarks.paired_ratio import compared
from benchmarks.placement_live import START
from benchmarks.processes import cpu_us, threads_us, tree_us
from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import LeaseEnd, LeaseRequest
from contracts.prefix import chain_bytes, root
from contracts.usage import Finish, Usage
from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from tests.deployment import Deployment, deployment, fake_fleet, free_port
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.serving import serving

TOKENS = 16
WORKERS = 16
WARM_UP = 600
REPLICAS = 8
AT_A_TIME = 256
PROMPT_TOKENS = 2_000
SESSIONS = 500
"""Each has a prompt of its own, which the router finds again."""


class Fleet(NamedTuple):
    """One deployment under load."""

    client: Client
    engine: FakeEngineProcess
    pids: dict[str, int]
    """By the name that `slipstream status` shows."""

    def spent_us(self) -> dict[str, float]:
        """The CPU time so far by kind of process, a gateway's loop and its other threads apart."""
        spent: dict[str, float] = {}
        for name, pid in self.pids.items():
            kind = name.partition("-")[0]
            if kind == "gateway":
                for thread, used_us in threads_us(pid).items():
                    part = "gateway's loop" if thread == pid else "gateway's other threads"
                    spent[part] = spent.get(part, 0.0) + used_us
            else:
                spent[kind] = spent.get(kind, 0.0) + tree_us(pid)
        return spent

    def by_gateway_us(self) -> list[float]:
        """The CPU time so far of each gateway."""
        return [cpu_us(pid) for name, pid in self.pids.items() if name.startswith("gateway")]


@contextlib.asynccontextmanager
async def fleet(gateways: int) -> AsyncIterator[Fleet]:
    """Run a deployment with so many gateways in front of a fake engine that answers at once."""
    async with (
        fake_engine(token=TOKEN) as engine,
        deployment(
            options=("--gateways", str(gateways)), environment=fake_fleet(engine.url), token=TOKEN, on_disk=True
        ) as platform,
    ):
        await engine.control(ttft_s=0.0, inter_token_s=0.0, tokens=TOKENS)
        client = Client(platform.url, await platform.make_key(*AMPLE_LIMITS), "fake", [PROMPT])
        try:
            yield Fleet(client, engine, await pids_of(platform))
        finally:
            await client.close()


async def pids_of(platform: Deployment) -> dict[str, int]:
    """The process ids of a deployment by name."""
    return {name: int(process["pid"]) for name, process in (await platform.processes()).items()}


async def ask(of: Fleet, requests: int) -> dict[str, float]:
    """CPU per request by kind of process, in µs, over that many requests."""
    before = of.spent_us()
    await closed_loop(of.client, requests, WORKERS, TOKENS)
    sent = requests // WORKERS * WORKERS
    return {kind: (used - before.get(kind, 0.0)) / sent for kind, used in of.spent_us().items()}


async def one_router(leases: int) -> tuple[float, float]:
    """A router's CPU per lease in µs, and the share of the time in which it was busy."""

    async def healthy(_: web.Request) -> web.Response:
        return web.json_response({})

    config = RouterConfig(port=free_port(), control_port=0)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, msgspec.json.encode(config).decode(), TOKEN
    )
    client = RouterClient(RouterClientConfig(address=f"127.0.0.1:{config.port}"), TOKEN, "benchmark")
    try:
        async with serving(healthy) as url:
            await client.start()
            if not await client.wait_connected(60):
                raise TimeoutError("the router did not become ready")
            replicas = tuple(Replica(f"engine-{number}", url) for number in range(REPLICAS))
            pool = Pool("pool", "openai", replicas, AT_A_TIME)
            client.publish(DesiredState(1, (Model("model", Tier.CHAT, "pool", 1 << 20),), (pool,)))
            chains = [chain_bytes(root("model"), f"{session} ".encode() * PROMPT_TOKENS) for session in range(SESSIONS)]

            async def lease(number: int) -> None:
                lease_id, session = f"lease-{number}", number % SESSIONS
                chain = chains[session]
                await client.acquire(
                    LeaseRequest(
                        lease_id, lease_id, 0, Tier.CHAT, "model", PROMPT_TOKENS, TOKENS, 30.0, f"org-{number % 50}",
                        chain.kind, chain.hashes, session_id=f"session-{session}",
                    )
                )  # fmt: skip
                client.first_token(lease_id, 0.02, 0)
                client.release(LeaseEnd(lease_id, Finish.COMPLETE, Usage(PROMPT_TOKENS, TOKENS)))

            async def lease_each(numbers: Iterator[int]) -> None:
                for number in numbers:
                    await lease(number)

            async def lease_all(numbers: range) -> None:
                left = iter(numbers)
                await asyncio.gather(*(lease_each(left) for _ in range(AT_A_TIME)))

            await lease_all(range(4 * SESSIONS))
            before_us, began_s = tree_us(process.pid), time.monotonic()
            await lease_all(range(4 * SESSIONS, 4 * SESSIONS + leases))
            used_us, wall_s = tree_us(process.pid) - before_us, time.monotonic() - began_s
            return used_us / leases, used_us / 1e6 / wall_s
    finally:
        await client.stop()
        process.terminate()
        await process.wait()


async def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1_600)
    parser.add_argument("--leases", type=int, default=20_000)
    options = parser.parse_args()
    async with fleet(1) as one, fleet(2) as two:
        for each in (one, two):
            await ask(each, WARM_UP)
        rounds: list[tuple[dict[str, float], dict[str, float]]] = []
        shared_before = two.by_gateway_us()
        for turn in range(options.rounds):
            turns = (one, two) if turn % 2 else (two, one)
            found = {id(each): await ask(each, options.requests) for each in turns}
            rounds.append((found[id(one)], found[id(two)]))
            print(f"round {turn + 1}: " + ", ".join(f"{sum(each.values()):.0f} us" for each in rounds[-1]), flush=True)
        shares = [after - before for after, before in zip(two.by_gateway_us(), shared_before, strict=True)]
    lease_us, busy = await one_router(options.leases)
    medians = {
        kind: [statistics.median(each[at].get(kind, 0.0) for each in rounds) for at in (0, 1)] for kind in rounds[0][1]
    }
    print(f"{'CPU per request, us':<22} {'one gateway':>12} {'two':>8}")
    for kind, (with_one, with_two) in sorted(medians.items(), key=lambda item: -item[1][0]):
        print(f"{kind:<22} {with_one:12.0f} {with_two:8.0f}")
    print(f"the busier of two gateways does {max(shares) / sum(shares):.0%} of their work")
    gateway_us = sum(medians[part][0] for part in medians if part.startswith("gateway"))
    print(f"one router: {lease_us:.0f} us a lease, {1e6 / lease_us:,.0f} a second on a core ({busy:.0%} busy here)")
    print(f"one core of a gateway: {1e6 / gateway_us:,.0f} requests a second")
    rise = compared([sum(each.values()) for each, _ in rounds], [sum(each.values()) for _, each in rounds])
    line = {
        "request_us": {kind: [round(value, 1) for value in values] for kind, values in medians.items()},
        "rise": rise[0],
        "rise_ci95": rise[1:],
        "busier_share": round(max(shares) / sum(shares), 2),
        "lease_us": round(lease_us, 1),
        "router_requests_per_s": round(1e6 / lease_us),
        "gateway_requests_per_s": round(1e6 / gateway_us),
        "router_busy": round(busy, 2),
        "cores": os.cpu_count(),
    }
    print(msgspec.json.encode(line).decode())


if __name__ == "__main__":
    uvloop.run(main())
