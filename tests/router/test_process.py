"""The router as a process of its own, with the real drivers: killed, restarted, told to stop, scraped."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest
from aiohttp import web

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.lease import LeaseEnd
from contracts.metrics import MetricsConfig
from contracts.usage import Finish
from router.config import RouterConfig
from tests.deployment import free_port
from tests.router.fakes import GUARD_S, TOKEN, Connect, ask
from tests.serving import serving
from tests.waiting import eventually

START = """
import sys, msgspec
from engines.http.keys import EngineKeys
from router.config import RouterConfig
from router.service import main
from router.tokens import RouterTokens
config = msgspec.json.decode(sys.argv[1], type=RouterConfig)
main(config, RouterTokens(sys.argv[2], "reader"), EngineKeys(lambda: "engines", {}))
"""


async def run(config: RouterConfig) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", START, msgspec.json.encode(config).decode(), TOKEN
    )


@pytest.fixture
async def engine_url() -> AsyncIterator[str]:
    """Something that answers every request with 200, as a healthy engine answers its polls."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({})

    async with serving(answer) as url:
        yield url


class Engine:
    """Answers every request with 200 until it is told to hang: then it accepts and says nothing."""

    def __init__(self) -> None:
        self.hangs = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        if self.hangs.is_set():
            await self.goes_on.wait()
        return web.json_response({})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    async with serving(made.answer) as made.url:
        yield made
        made.goes_on.set()


async def test_an_engine_that_hangs_is_left_alone_and_used_again_when_it_goes_on(
    engine: Engine, engine_url: str, connect: Connect
) -> None:
    config = RouterConfig(
        control_port=0,
        port=free_port(),
        policy="prefix",
        poll_interval_s=0.05,
        recovery_interval_s=0.05,
        probe_timeout_s=0.2,
    )
    router = await run(config)
    client = await connect(config.port, patience_s=GUARD_S)
    replicas = (Replica("hangs", engine.url), Replica("well", engine_url))
    models = (Model("m", Tier.CHAT, "pool", 2048),)
    client.publish(DesiredState(1, models, (Pool("pool", "openai", replicas, 2),)))
    numbers = iter(range(10_000))

    async def places() -> set[str]:
        """Where four requests go, which are two more than one engine may have."""
        names = [f"l{next(numbers)}" for _ in range(4)]
        found = await asyncio.gather(
            *(client.acquire(ask(name, deadline_s=0.0)) for name in names), return_exceptions=True
        )
        leases = [one for one in found if not isinstance(one, BaseException)]
        for lease in leases:
            client.release(LeaseEnd(lease.lease_id, Finish.COMPLETE))
        return {lease.engine.replica_id for lease in leases}

    async def until_used(expected: set[str]) -> None:
        async def used() -> bool:
            return await places() == expected

        await eventually(used)

    await until_used({"hangs", "well"})
    engine.hangs.set()
    await until_used({"well"})
    engine.hangs.clear()
    engine.goes_on.set()
    await until_used({"hangs", "well"})
    router.kill()
    await router.wait()


async def test_a_router_process_is_killed_restarted_and_stopped(engine_url: str, connect: Connect) -> None:
    metrics = MetricsConfig(port=free_port())
    config = RouterConfig(port=free_port(), control_port=0, metrics=metrics, poll_interval_s=0.05)
    state = DesiredState(
        4,
        (Model("m", Tier.CHAT, "pool", 2048),),
        (Pool("pool", "openai", (Replica("r1", engine_url),), max_concurrency=2),),
    )
    router = await run(config)
    client = await connect(config.port, patience_s=GUARD_S)
    client.publish(state)
    for lease_id in ("l1", "l2"):
        assert (await client.acquire(ask(lease_id))).engine.url == engine_url

    waiting = asyncio.create_task(client.acquire(ask("l3", deadline_s=GUARD_S)))
    router.kill()
    await router.wait()
    router = await run(config)
    await eventually(lambda: client.connections == 2)
    client.release(LeaseEnd("l1", Finish.COMPLETE))
    assert (await waiting).lease_id == "l3"

    async with aiohttp.request("GET", f"http://127.0.0.1:{metrics.port}/metrics") as answer:
        told = await answer.text()
    assert 'slipstream_router_leases{pool="pool",replica="r1"} 2.0' in told
    assert 'slipstream_router_replica_healthy{pool="pool",replica="r1"} 1.0' in told
    assert 'slipstream_router_grants_total{replica="r1"} 1.0' in told
    assert "slipstream_router_desired_state_version 4.0" in told
    assert "slipstream_router_decision_seconds_count" in told

    router.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(router.wait(), GUARD_S) == 0
    await eventually(lambda: not client.connected)
