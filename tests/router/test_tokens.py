"""Whose token opens what at the lease port, and which desired states it takes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from contracts.desired_state import DesiredState
from contracts.errors import RouterUnavailable
from contracts.proto import router_pb2 as pb
from router.control.client import ControlClient
from router.protocol import messages
from router.protocol.framing import FrameReader, framed
from router.server import RouterServer
from router.tokens import Role
from tests.deployment import free_port
from tests.router.fakes import GUARD_S, READER_TOKEN, TOKEN, TOKENS, Connect, StartRouter, ask, fleet
from tests.waiting import eventually

ENGINES_TOKEN = "token-that-every-engine-holds"
STRANGERS = ("", ENGINES_TOKEN, TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "tökén", "x" * 3_000)
FAR = 2**62


def hijacked(version: int) -> DesiredState:
    """A fleet whose only engine is the attacker's."""
    state = fleet(version, replicas=("attackers",))
    return msgspec.structs.replace(state, version=version)


async def said_to(router: RouterServer, token: str, *sent: pb.GatewayMessage) -> list[pb.RouterMessage]:
    """Everything the router answers until it closes, to a peer that sends all of it at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
    writer.write(b"".join([framed(messages.opening(token)), *map(framed, sent)]))
    async with asyncio.timeout(GUARD_S):
        answered = await reader.read()
    writer.close()
    return [pb.RouterMessage.FromString(payload) for payload in FrameReader(messages.MAX_MESSAGE_BYTES).feed(answered)]


HELLO = pb.GatewayMessage(hello=pb.Hello(gateway_id="somebody", epoch="1"))


@pytest.mark.parametrize("token", STRANGERS)
def test_only_the_very_tokens_have_a_role(token: str) -> None:
    assert TOKENS.role_of(TOKEN) is Role.GATEWAY
    assert TOKENS.role_of(READER_TOKEN) is Role.READER
    assert TOKENS.role_of(token) is None


@pytest.mark.parametrize("token", [ENGINES_TOKEN, READER_TOKEN, ""])
async def test_whoever_is_no_gateway_neither_leases_nor_publishes(
    start_router: StartRouter, connect: Connect, token: str
) -> None:
    router = await start_router()
    honest = await connect(router.port)
    honest.publish(fleet(7, replicas=("r1",)))
    await eventually(lambda: router.dispatcher.fleet.version == 7)
    publish, lease = messages.desired_state(hijacked(FAR)), messages.acquire(ask("stolen"), 30.0)
    for attack in ((HELLO, publish, lease), (publish,), (lease,), (HELLO, lease)):
        answers = await said_to(router, token, *attack)
        assert {answer.WhichOneof("body") for answer in answers} == {"closing"}
    assert router.dispatcher.fleet.version == 7
    assert set(router.dispatcher.fleet.replicas) == {"r1"}
    assert set(router.dispatcher.sessions) == {honest.gateway_id}
    assert (await honest.acquire(ask("l1"))).engine.replica_id == "r1"
    honest.publish(fleet(8, replicas=("r2",)))
    assert (await honest.acquire(ask("l2"))).engine.replica_id == "r2"


@pytest.mark.parametrize("token", [TOKEN, READER_TOKEN])
async def test_gateways_and_readers_may_ask(start_router: StartRouter, connect: Connect, token: str) -> None:
    router = await start_router()
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1",)))
    await client.acquire(ask("l1"))
    with ControlClient(f"127.0.0.1:{router.control_port}", token) as control:
        assert (await asyncio.to_thread(control.fleet)).gateways == 1
        [record] = await asyncio.to_thread(control.explain, "req_l1")
    assert record.chosen == "r1"


async def test_an_engines_token_may_not_even_ask(start_router: StartRouter) -> None:
    router = await start_router()
    [answer] = await said_to(router, ENGINES_TOKEN, HELLO)
    assert "router token is required" in answer.closing.reason
    with ControlClient(f"127.0.0.1:{router.control_port}", ENGINES_TOKEN) as control:
        for question in (control.fleet, lambda: control.explain("req_1")):
            with pytest.raises(RouterUnavailable, match="refused"):
                await asyncio.to_thread(question)


async def test_a_reader_is_sent_from_the_lease_port_to_the_control_service(start_router: StartRouter) -> None:
    router = await start_router()
    for sent in ((), (HELLO,)):
        [answer] = await said_to(router, READER_TOKEN, *sent)
        assert "the control service (router.control_port); leases require the gateways' token (router.token)" in (
            answer.closing.reason
        )


@pytest.mark.parametrize("field", [9, 10])
async def test_what_earlier_releases_asked_at_the_lease_port_is_no_hello(start_router: StartRouter, field: int) -> None:
    router = await start_router()
    asked = pb.GatewayMessage.FromString(bytes([field << 3 | 2, 0]))
    [answer] = await said_to(router, TOKEN, asked)
    assert "the first message must be a hello" in answer.closing.reason


async def test_a_version_too_far_ahead_is_refused_and_the_next_true_one_taken(
    start_router: StartRouter, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    router = await start_router(max_version_jump=100)
    broken, honest = await connect(router.port, gateway_id="broken"), await connect(router.port)
    honest.publish(fleet(7, replicas=("r1",)))
    await eventually(lambda: router.dispatcher.fleet.version == 7)
    for version in (108, FAR):
        broken.publish(hijacked(version))
        await eventually(lambda version=version: f"desired state {version} of gateway broken refused" in caplog.text)  # type: ignore[misc, arg-type]
    assert "restart the router" in caplog.text
    assert (await honest.acquire(ask("l1"))).engine.replica_id == "r1"
    honest.publish(fleet(107, replicas=("r2",)))
    assert (await honest.acquire(ask("l2"))).engine.replica_id == "r2"


async def test_a_router_started_again_takes_the_version_the_database_has(
    start_router: StartRouter, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    router = await start_router(port=free_port(), max_version_jump=100)
    client = await connect(router.port)
    client.publish(fleet(7, replicas=("r1",)))
    await eventually(lambda: router.dispatcher.fleet.version == 7)
    client.publish(fleet(1_000_000, replicas=("r2",)))
    await eventually(lambda: "desired state 1000000" in caplog.text)
    port = router.port
    await router.abort()
    again = await start_router(port=port, max_version_jump=100)
    await eventually(lambda: again.dispatcher.fleet.version == 1_000_000)
    assert (await client.acquire(ask("l1"))).engine.replica_id == "r2"
