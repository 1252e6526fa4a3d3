"""The control service over a real gRPC port: what is seen, watched, drained; who may call; health for probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from contracts.errors import NotFound, Overloaded, RouterUnavailable
from contracts.lease import LeaseEnd
from contracts.proto import control_pb2 as pb
from contracts.proto.control_pb2_grpc import RouterControlStub
from contracts.usage import Finish
from router.control.authorization import SERVICE
from router.control.client import ControlClient
from router.control.watchers import QUEUE_LENGTH, Watchers
from router.core.record import Record
from router.server import RouterServer
from slipstream.commands.fleet import left_without
from tests.router.fakes import TOKEN, Connect, FakeEngines, StartRouter, ask, fleet, queued
from tests.waiting import eventually

Health = health_pb2.HealthCheckResponse


@pytest.fixture
async def router(start_router: StartRouter) -> RouterServer:
    return await start_router()


@pytest.fixture
async def channel(router: RouterServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{router.control_port}") as channel:
        yield channel


def control(router: RouterServer, token: str = TOKEN) -> ControlClient:
    return ControlClient(f"127.0.0.1:{router.control_port}", token)


async def test_the_fleet_is_seen_with_its_leases_and_queue(
    router: RouterServer, connect: Connect, engines: FakeEngines
) -> None:
    engines.status["http://127.0.0.1/r2"] = 0
    engines.running["http://127.0.0.1/r1"] = 7
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1", "r2"), max_concurrency=1))
    await client.acquire(ask("l1"))
    await eventually(lambda: router.dispatcher.fleet.replicas["r2"].detail == "connection refused")
    second = asyncio.create_task(client.acquire(ask("l2")))
    await eventually(lambda: queued(router.dispatcher) == 1)
    with control(router) as calls:
        seen = await asyncio.to_thread(calls.fleet)
    (pool,) = seen.pools
    replica, refusing = pool.replicas
    assert (seen.gateways, seen.desired_state_version, pool.queued) == (1, fleet().version, 1)
    assert (replica.id, replica.health, replica.breaker, replica.leases) == ("r1", "healthy", "closed", 1)
    assert (replica.usable, replica.running) == (True, 7)
    assert (refusing.usable, refusing.detail) == (False, "connection refused")
    client.release(LeaseEnd("l1", Finish.COMPLETE))
    await second


async def test_a_drained_replica_gets_no_lease_until_it_is_taken_back(router: RouterServer, connect: Connect) -> None:
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1", "r2")))
    with control(router) as calls:

        async def call(what: Callable[..., Any], *given: object) -> Any:
            return await asyncio.to_thread(what, *given)

        drained = await call(calls.drain, "r1", True)
        assert (drained.draining, drained.usable) == (True, False)
        leases = [await client.acquire(ask(f"l{number}")) for number in range(4)]
        assert {lease.engine.replica_id for lease in leases} == {"r2"}
        seen = await call(calls.fleet)
        assert [left_without(seen, name) for name in ("r1", "r2", "nobody")] == [None, None, None]
        await call(calls.drain, "r2", True)
        seen = await call(calls.fleet)
        assert left_without(seen, "r2") == seen.pools[0].name
        assert (await call(calls.drain, "r1", False)).usable
        again = [await client.acquire(ask(f"m{number}")) for number in range(4)]
        assert {lease.engine.replica_id for lease in again} == {"r1"}
        with pytest.raises(NotFound, match="no replica 'x'; replicas: r1, r2"):
            await call(calls.drain, "x", True)


async def test_who_waits_for_the_last_replica_hears_at_once_that_it_is_drained(
    router: RouterServer, connect: Connect
) -> None:
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    await client.acquire(ask("l1"))
    waiting = asyncio.create_task(client.acquire(ask("l2")))
    await eventually(lambda: queued(router.dispatcher) == 1)
    with control(router) as calls:
        await asyncio.to_thread(calls.drain, "r1", True)
    with pytest.raises(Exception, match="engine"):
        await waiting


async def test_decisions_are_watched_as_they_are_taken(router: RouterServer, connect: Connect) -> None:
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    with control(router) as calls:
        watching = calls.watch()
        first = asyncio.create_task(asyncio.to_thread(next, watching))
        await eventually(lambda: len(router._watchers) == 1)
        await client.acquire(ask("l1"))
        record, missed = await first
        assert (record.lease_id, record.chosen, missed) == ("l1", "r1", 0)
        with pytest.raises(Overloaded):
            await client.acquire(ask("l2", deadline_s=0.0))
        record, missed = await asyncio.to_thread(next, watching)
        assert record.refused.startswith("overloaded")
        await asyncio.to_thread(watching.close)  # type: ignore[attr-defined]
    await eventually(lambda: len(router._watchers) == 0)


async def test_a_watcher_that_does_not_read_misses_some_and_is_told_how_many() -> None:
    watchers = Watchers()
    watching = watchers.watch()
    first = asyncio.ensure_future(anext(watching))
    await eventually(lambda: len(watchers) == 1)
    for number in range(QUEUE_LENGTH + 5):
        watchers.decided(Record(str(number), str(number), 0, "m", "p", "prefix", "", 1, 1, 0.0, 0.0))
    assert (await first)[0].request_id == "0"
    for _ in range(QUEUE_LENGTH - 1):
        assert (await anext(watching))[1] == 0
    watchers.decided(Record("last", "last", 0, "m", "p", "prefix", "", 1, 1, 0.0, 0.0))
    record, missed = await anext(watching)
    assert (record.request_id, missed) == ("last", 5)
    await watching.aclose()  # type: ignore[attr-defined]


async def test_without_the_token_nothing_is_seen_or_changed(router: RouterServer) -> None:
    for token in ("", "wrong", TOKEN + "x"):
        with control(router, token) as calls:
            for call in (calls.fleet, lambda: calls.explain("req_1"), lambda: calls.drain("r1", True)):
                with pytest.raises(RouterUnavailable, match="token"):
                    await asyncio.to_thread(call)
            with pytest.raises(RouterUnavailable, match="token"):
                await asyncio.to_thread(next, calls.watch())


async def test_health_says_whether_a_fleet_is_known_and_needs_no_token(
    router: RouterServer, connect: Connect, channel: grpc.aio.Channel
) -> None:
    health: Any = health_pb2_grpc.HealthStub(channel)
    for service in ("", SERVICE):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == Health.NOT_SERVING
    watching = health.Watch(health_pb2.HealthCheckRequest(service=""))
    assert (await watching.read()).status == Health.NOT_SERVING
    client = await connect(router.port)
    client.publish(fleet())
    assert (await watching.read()).status == Health.SERVING
    watching.cancel()


async def test_reflection_names_the_services_and_nothing_remembered_is_not_found(channel: grpc.aio.Channel) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type]
    stream = stub.ServerReflectionInfo()
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await stream.read()).list_services_response.service}
    stream.cancel()
    assert {SERVICE, "grpc.health.v1.Health"} <= names
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await RouterControlStub(channel).ExplainRequest(
            pb.ExplainRequestRequest(request_id="req_x"), metadata=(("authorization", f"Bearer {TOKEN}"),)
        )
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
