"""Gateways and a router over real sockets: what happens when either side, or the line between them, goes away."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from contracts.errors import ConfigError, ModelNotFound, NoEngine, Overloaded, RouterUnavailable
from contracts.lease import LeaseEnd
from contracts.proto import router_pb2 as pb
from contracts.usage import Finish, Usage
from router.client import RouterClient
from router.core.replica import Health
from router.protocol import messages
from router.protocol.framing import FrameReader, framed
from router.server import RouterServer
from tests.deployment import free_port
from tests.router.fakes import GUARD_S, TOKEN, Connect, FakeEngines, StartRouter, ask, fleet, queued
from tests.waiting import eventually


def leases(router: RouterServer, replica_id: str = "r1") -> int:
    replica = router.dispatcher.fleet.replicas.get(replica_id)
    return 0 if replica is None else replica.leases


def healthy(router: RouterServer) -> list[str]:
    return [one.id for one in router.dispatcher.fleet.replicas.values() if one.health is Health.HEALTHY]


def ended(lease_id: str) -> LeaseEnd:
    return LeaseEnd(lease_id, Finish.COMPLETE, Usage(10, 5, 2))


async def restart(router: RouterServer, start_router: StartRouter) -> RouterServer:
    """A new router process on the same port; the old one is gone without a word."""
    port = router.port
    await router.abort()
    return await start_router(port=port)


async def test_a_lease_is_granted_reported_and_released(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",)))
    lease = await client.acquire(ask("l1"))
    assert (lease.engine.replica_id, lease.engine.model) == ("r1", "m-inside")
    assert leases(router) == 1
    client.first_token("l1", 0.05, 3)
    client.release(ended("l1"))
    client.release(ended("l1"))
    await eventually(lambda: leases(router) == 0)


async def test_refusals_arrive_as_our_errors(start_router: StartRouter, connect: Connect, engines: FakeEngines) -> None:
    engines.status["http://127.0.0.1/r1"] = 503
    router = await start_router()
    client = await connect(router.port)
    with pytest.raises(RouterUnavailable, match="just started") as unavailable:
        await client.acquire(ask("l0"))
    assert unavailable.value.retry_after_s
    client.publish(fleet(replicas=("r1",)))
    with pytest.raises(NoEngine) as no_engine:
        await client.acquire(ask("l1"))
    assert no_engine.value.retry_after_s == router.config.retry_after_s
    with pytest.raises(ModelNotFound) as not_found:
        await client.acquire(ask("l2", model="nowhere"))
    assert not_found.value.retry_after_s is None
    engines.status.clear()
    client.publish(fleet(2, replicas=("r1",), max_concurrency=1))
    await eventually(lambda: healthy(router) == ["r1"])
    await client.acquire(ask("l3"))
    with pytest.raises(Overloaded) as overloaded:
        await client.acquire(ask("l4", deadline_s=0.01))
    assert overloaded.value.retry_after_s


async def test_many_at_once_each_get_their_own_answer(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(max_concurrency=1_000))
    await eventually(lambda: healthy(router) == ["r1", "r2"])
    granted = await asyncio.gather(*(client.acquire(ask(f"l{number}")) for number in range(500)))
    assert [lease.lease_id for lease in granted] == [f"l{number}" for number in range(500)]
    # not equal shares: no engine answers, and one that has been silent for a second is taken for stuck
    held = router.dispatcher.sessions[client.gateway_id].leases
    assert {lease.lease_id: lease.engine.replica_id for lease in granted} == {
        lease_id: live.replica_id for lease_id, live in held.items()
    }
    for lease in granted:
        client.release(ended(lease.lease_id))
    await eventually(lambda: leases(router, "r1") == leases(router, "r2") == 0)


async def test_the_wrong_token_is_refused(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port, token="another", welcomed=False, patience_s=0.05)
    with pytest.raises(RouterUnavailable):
        await client.acquire(ask("l1"))
    assert not client.connected


async def test_strangers_are_sent_away(start_router: StartRouter) -> None:
    router, hurried = await start_router(), await start_router(silence_s=0.1)

    async def said(*frames: bytes, router: RouterServer = router) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
        writer.write(b"".join(frames))
        async with asyncio.timeout(GUARD_S):
            answered = await reader.read()
        writer.close()
        return "".join(
            pb.RouterMessage.FromString(payload).closing.reason
            for payload in FrameReader(messages.MAX_MESSAGE_BYTES).feed(answered)
        )

    opening = framed(messages.opening(TOKEN))
    assert await said(b"GET /metrics HTTP/1.1\r\n\r\n") == ""
    assert "nothing heard" in await said(router=hurried)
    assert "nothing heard" in await said(opening, router=hurried)
    assert "version 7" in await said(framed(pb.Opening(token=TOKEN, version=7)))
    assert "first message must be" in await said(opening, framed(pb.GatewayMessage(hello=pb.Hello(gateway_id="g"))))
    assert "cannot be read" in await said(opening, b"\x00\x00\x00\x01\xff")
    for each in (router, hurried):
        await eventually(lambda each=each: not each.connections)  # type: ignore[misc, arg-type]
        assert each.metrics.registry.get_sample_value("slipstream_router_streams_closed_total") == 0


async def test_a_cancelled_wait_leaves_the_queue(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    await client.acquire(ask("l1"))
    waiting = asyncio.create_task(client.acquire(ask("l2")))
    await eventually(lambda: queued(router.dispatcher) == 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await eventually(lambda: queued(router.dispatcher) == 0)
    client.release(ended("l1"))
    await eventually(lambda: leases(router) == 0)


async def test_a_cancel_that_crosses_its_grant_gives_the_place_back(
    start_router: StartRouter, connect: Connect
) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",)))
    await client.acquire(ask("warm"))
    # on its way: the router has granted, the gateway has not read it yet
    on_its_way = asyncio.create_task(client.acquire(ask("l1")))
    while leases(router) < 2:  # noqa: ASYNC110  the very next turn of the loop is wanted
        await asyncio.sleep(0)
    on_its_way.cancel()
    # arrived: the answer is there, the task that waits for it has not run yet
    arrived = asyncio.create_task(client.acquire(ask("l2")))
    while "l2" not in client.book.live:
        await asyncio.sleep(0)
        if "l2" in client.book.live:
            arrived.cancel()
    await asyncio.gather(on_its_way, arrived, return_exceptions=True)
    assert on_its_way.cancelled()
    if not arrived.cancelled():
        client.release(ended("l2"))
    await eventually(lambda: leases(router) == 1 and set(client.book.live) == {"warm"})


async def test_live_leases_survive_a_broken_stream(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",)))
    for lease_id in ("live", "ends"):
        await client.acquire(ask(lease_id))
    client._drop_connection()
    await eventually(lambda: not client.connected)
    client.release(ended("ends"))
    await eventually(lambda: client.connections >= 2)
    await eventually(lambda: leases(router) == 1)
    assert set(router.dispatcher.sessions[client.gateway_id].leases) == {"live"}


async def test_a_first_token_without_a_connection_is_reported_by_the_next_one(
    start_router: StartRouter, connect: Connect
) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",)))
    await client.acquire(ask("live"))
    replica = router.dispatcher.fleet.replicas["r1"]
    assert len(replica.prefilling) == 1
    client._drop_connection()
    await eventually(lambda: not client.connected)
    client.first_token("live", 0.01, 0)
    await eventually(lambda: client.connections >= 2)
    await eventually(lambda: not replica.prefilling)
    assert leases(router) == 1


async def test_a_killed_router_comes_back_knowing_everything(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router(port=free_port())
    clients = [await connect(router.port) for _ in range(2)]
    clients[0].publish(fleet(7, replicas=("r1",), max_concurrency=3))
    for number, client in enumerate(clients):
        await client.acquire(ask(f"live-{number}"))
    router = await restart(router, start_router)
    await eventually(lambda: all(client.connections >= 2 for client in clients))
    await eventually(lambda: leases(router) == 2)
    await eventually(lambda: router.dispatcher.fleet.version == 7)
    await clients[0].acquire(ask("another"))
    for number, client in enumerate(clients):
        client.release(ended(f"live-{number}"))
    await eventually(lambda: leases(router) == 1)


async def test_asks_waiting_when_the_router_dies_are_answered_by_the_next(
    start_router: StartRouter, connect: Connect
) -> None:
    router = await start_router(port=free_port())
    client = await connect(router.port, patience_s=GUARD_S)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    await client.acquire(ask("l1"))
    before = asyncio.create_task(client.acquire(ask("before")))
    await eventually(lambda: queued(router.dispatcher) == 1)
    port = router.port
    await router.abort()
    await eventually(lambda: not client.connected)
    during = asyncio.create_task(client.acquire(ask("during")))
    router = await start_router(port=port)
    client.release(ended("l1"))
    assert (await before).engine.replica_id == "r1"
    client.release(ended("before"))
    assert (await during).engine.replica_id == "r1"


async def test_without_a_router_asks_fail_soon(connect: Connect, start_router: StartRouter) -> None:
    """Those that waited when it died, and those that come after."""
    router = await start_router()
    client = await connect(router.port, patience_s=0.05)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    await client.acquire(ask("l1"))
    waiting = asyncio.create_task(client.acquire(ask("l2")))
    await eventually(lambda: queued(router.dispatcher) == 1)
    await router.abort()
    with pytest.raises(RouterUnavailable):
        await waiting
    never_connected = await connect(router.port, welcomed=False, patience_s=0.05)
    for each in (client, never_connected):
        with pytest.raises(RouterUnavailable) as unavailable:
            await each.acquire(ask("l3"))
        assert unavailable.value.retry_after_s == 1.0
        assert not each.book.pending


async def test_a_router_that_says_nothing_is_taken_for_absent(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port, answer_margin_s=0.05)
    client.publish(fleet(replicas=("r1",)))
    await eventually(lambda: router.dispatcher.fleet.version == 1)
    router.dispatcher.handle = lambda event, now: []  # type: ignore[method-assign]
    with pytest.raises(RouterUnavailable, match="did not answer"):
        await client.acquire(ask("l1", deadline_s=0.05))


async def test_a_router_that_hangs_is_left(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port, ping_interval_s=0.02)
    client.publish(fleet(replicas=("r1",)))
    await client.acquire(ask("l1"))
    for connection in router.connections.values():
        connection.send = lambda message: None  # type: ignore[method-assign]
    await eventually(lambda: client.connections >= 2)
    await client.acquire(ask("l2"))
    assert leases(router) == 2


async def test_a_gateway_that_hangs_is_disconnected(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router(silence_s=3_600.0)
    hung = await connect(router.port, ping_interval_s=3_600.0)
    alive = await connect(router.port, ping_interval_s=0.02)
    alive.publish(fleet(replicas=("r1",)))
    await hung.acquire(ask("l1"))
    await alive.acquire(ask("l2"))
    by_name = {one.gateway_id: one for one in router.connections.values()}
    for _ in range(2):  # of the silence's time; by the clock a busy machine is silent too
        await eventually(lambda: by_name[alive.gateway_id]._heard)
        for connection in by_name.values():
            connection._check_silence()
    await eventually(lambda: not hung.connected or hung.connections > 1)
    assert alive.connections == 1
    assert set(router.dispatcher.sessions[alive.gateway_id].leases) == {"l2"}


async def test_a_gateway_that_does_not_read_is_disconnected(start_router: StartRouter) -> None:
    router = await start_router(stream_messages=50)
    _, writer = await asyncio.open_connection("127.0.0.1", router.port, limit=1)
    for message in (
        messages.opening(TOKEN),
        pb.GatewayMessage(hello=pb.Hello(gateway_id="deaf", epoch="1")),
        messages.desired_state(fleet(replicas=("r1",), max_concurrency=1_000_000)),
    ):
        writer.write(framed(message))
    # the answers carry the id back; a megabyte each fills what the line holds in a moment
    async with asyncio.timeout(GUARD_S):
        number = 0
        while "deaf" not in router.dispatcher.sessions or router.dispatcher.connections:
            number += 1
            with contextlib.suppress(ConnectionError):
                writer.write(framed(messages.acquire(ask(f"{number}" + "x" * 1_000_000), 30.0)))
                await writer.drain()
    closed = "slipstream_router_streams_closed_total"
    await eventually(lambda: router.metrics.registry.get_sample_value(closed) == 1)
    assert router.dispatcher.sessions["deaf"].grace_ends_at is not None
    writer.close()


async def test_a_router_that_does_not_read_is_reconnected_to(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port, outbox_messages=16)
    client.publish(fleet(replicas=("r1",), max_concurrency=1_000))
    await eventually(lambda: router.dispatcher.fleet.version == 1)
    for connection in router.connections.values():
        assert connection.stream._transport
        connection.stream._transport.pause_reading()
    # half a megabyte each fills what the line holds in a moment
    asks = [asyncio.create_task(client.acquire(ask(f"{number}" + "x" * 500_000))) for number in range(50)]
    granted = await asyncio.gather(*asks)
    assert len(granted) == 50
    await eventually(lambda: leases(router) == 50)
    assert client.connections > 1


async def test_two_processes_of_one_gateway_do_not_mix(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    old = await connect(router.port, gateway_id="same")
    old.publish(fleet(replicas=("r1",)))
    await old.acquire(ask("l1"))
    await connect(router.port, gateway_id="same")
    await eventually(lambda: leases(router) == 0)
    await eventually(lambda: not old.connected)


async def test_a_port_in_use_is_one_clear_line(start_router: StartRouter) -> None:
    router = await start_router()
    with pytest.raises(ConfigError, match=rf"router\.port: cannot listen on 127\.0\.0\.1:{router.port}"):
        await start_router(port=router.port)


async def test_a_stopping_router_lets_decided_answers_leave(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",)))
    lease = asyncio.create_task(client.acquire(ask("l1")))
    await eventually(lambda: leases(router) == 1)
    await router.stop()
    assert (await lease).engine.replica_id == "r1"


async def test_stopping_a_client_leaves_nobody_waiting(start_router: StartRouter, connect: Connect) -> None:
    router = await start_router()
    client: RouterClient = await connect(router.port)
    client.publish(fleet(replicas=("r1",), max_concurrency=1))
    await client.acquire(ask("l1"))
    waiting = asyncio.create_task(client.acquire(ask("l2")))
    await eventually(lambda: queued(router.dispatcher) == 1)
    await client.stop()
    with pytest.raises(RouterUnavailable):
        await waiting
    gc.collect()  # a future whose error nobody took would speak up here
