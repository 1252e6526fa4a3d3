"""The pipeline with the real router and its client: what a request notices of a router that goes, and gives it back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.usage import Finish
from engines.drivers import registry as drivers
from engines.http.engine_connections import EngineConnections
from engines.http.keys import OneKey
from gateway.wire.config import RequestConfig
from gateway.wire.mistral.format import FimFormat
from router.client import RouterClient
from router.client_config import RouterClientConfig
from router.config import RouterConfig
from router.server import RouterServer
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import GUARD_S, Harness, body, harness
from tests.router.fakes import TOKEN, TOKENS
from tests.waiting import eventually

FIM = FimFormat(RequestConfig())


def gap(prefix: str) -> bytes:
    """What an editor asks for."""
    return msgspec.json.encode({"model": "m", "prompt": prefix, "suffix": "\n", "max_tokens": 5})


@contextlib.asynccontextmanager
async def routed(
    platform: Harness, max_concurrency: int = 64, engines_key: str = ""
) -> AsyncIterator[tuple[RouterServer, RouterClient]]:
    """A router that knows the harness's engines, and its client in the pipeline. max_concurrency: of each engine.
    An engine that a busy machine makes slow is not taken for a dead one."""
    connections = EngineConnections(OneKey(engines_key))
    config = RouterConfig(port=0, control_port=0, poll_interval_s=0.05, probe_timeout_s=GUARD_S)
    server = RouterServer(config, TOKENS, connections, drivers.get)
    await server.start()
    client = RouterClient(RouterClientConfig(address=f"127.0.0.1:{server.port}", patience_s=0.05), TOKEN, "gateway")
    await client.start()
    try:
        assert await client.wait_connected(GUARD_S)
        replicas = tuple(Replica(place.replica_id, place.url) for place in platform.places)
        model = Model("m", Tier.CHAT, "pool", 4_096, engine_model="fake")
        pool = Pool("pool", platform.places[0].driver, replicas, max_concurrency=max_concurrency)
        client.publish(DesiredState(1, (model,), (pool,)))
        platform.use_router(client)
        yield server, client
    finally:
        await client.stop()
        await server.stop()
        await connections.close()


async def test_a_lease_is_held_while_an_engine_answers_and_given_back_before_the_last_event() -> None:
    async with harness() as platform, routed(platform) as (server, router):
        platform.script(hang_after_tokens=2)
        client = Client()
        serving = asyncio.create_task(platform.serve(client))
        await client.reads(b"t1")
        assert len(router.book.live) == 1
        client.leave()
        await serving
        assert router.book.live == {}
        replicas = server.dispatcher.fleet.replicas.values()
        await eventually(lambda: sum(replica.leases for replica in replicas) == 0)


async def test_a_router_that_goes_while_an_engine_answers_takes_nothing_from_the_client() -> None:
    async with harness() as platform, routed(platform) as (server, router):
        platform.script(tokens=40, inter_token_s=0.001)
        client = Client()
        serving = asyncio.create_task(platform.serve(client, body(stream=True, max_tokens=100)))
        await client.reads(b"t1")
        await server.abort()
        await serving
        assert client.answer.events[-1] == "[DONE]"
        assert router.book.live == {}
        (record,) = platform.journal.records
        assert (record.finish, record.usage.completion_tokens) == (Finish.COMPLETE, 40)
        assert platform.limiter.settled == platform.limiter.reserved


async def test_a_router_that_is_gone_is_told_to_the_client_and_nothing_is_kept() -> None:
    async with harness() as platform, routed(platform) as (server, router):
        await server.abort()
        await eventually(lambda: not router.connected)
        client = Client()
        await platform.serve(client)
        assert (client.answer.status, client.answer.json["error"]["code"]) == (503, "router_unavailable")
        assert (router.book.live, router.book.pending) == ({}, {})
        assert platform.limiter.settled == platform.limiter.reserved
        assert [record.finish for record in platform.journal.records] == [Finish.NOT_PLACED]


async def test_who_types_on_leaves_the_routers_queue() -> None:
    async with (
        harness(engines=1, driver="embedded") as platform,
        routed(platform, max_concurrency=1) as (server, router),
    ):
        platform.script(hang=True)
        holder, older, newer = Client(), Client(), Client()
        asks = [gap("x = "), gap("def f():\n    ret"), gap("def f():\n    return")]
        holding = asyncio.create_task(platform.serve(holder, asks[0], FIM))
        await eventually(lambda: len(router.book.live) == 1)
        pool = server.dispatcher.fleet.pools["pool"]
        waiting = asyncio.create_task(platform.serve(older, asks[1], FIM))
        await eventually(lambda: len(pool.queue) == 1)
        typing = asyncio.create_task(platform.serve(newer, asks[2], FIM))
        await waiting
        await eventually(lambda: len(pool.queue) == 1 == len(router.book.pending))
        assert older.answer.json["choices"][0]["message"]["content"] == ""
        platform.script(hang=False)
        holder.leave()
        await asyncio.gather(holding, typing)
        assert newer.answer.json["choices"][0]["message"]["content"]
        assert (router.book.live, router.book.pending) == ({}, {})
        assert len(pool.queue) == 0
        assert platform.limiter.settled == platform.limiter.reserved
