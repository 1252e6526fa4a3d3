"""Who asks much outside inference waits for its own share of the loop, and nobody else does. In virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from gateway.http.client_connection import SCOPE_KEY
from gateway.http.loop_shares import (
    NETWORK_BURST_S,
    NETWORK_SHARE,
    OUTSIDE_BURST_S,
    OUTSIDE_SHARE,
    STRANGERS_SHARE,
    LoopShares,
)
from gateway.http.pace import KNOWN_S, MAX_KNOWN, MAX_OF_ORGANIZATION, REQUEST_S, KnownCredentials, Pace
from tests.virtual_time import in_virtual_time, now_s

WORK_S = 0.01
"""Of the loop, that each request takes here."""
COST_S = REQUEST_S + WORK_S
PROXY = "10.1.0.4"


class Connection:
    """As a request finds it. network: where it comes from."""

    def __init__(self, network: str) -> None:
        self.network = network
        self.organization_id = ""
        self.counted = self.gone = False
        self.on_gone: Callable[[], None] | None = None


class Gateway:
    """A pace with an application behind it that takes `WORK_S` of each turn of the loop. keys: organizations by the
    credential that is good for them."""

    def __init__(self, **keys: str) -> None:
        self.worked_s = 0.0
        self.served: list[str] = []
        """Networks, in the order in which they were served."""
        self.sent: list[Any] = []
        self.app: Any = self
        self._keys = keys
        self._pace = Pace(LoopShares(now_s), (PROXY,), lambda: self.worked_s)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        connection = scope[SCOPE_KEY]
        key = dict(scope["headers"]).get(b"authorization", b"").decode()
        if key in self._keys:
            connection.organization_id = self._keys[key]
        elif key:
            await send({"type": "http.response.start", "status": 401, "headers": []})
        self.worked_s += WORK_S
        self.served.append(connection.network)

    async def ask(self, network: str, key: str = "", path: str = "/v1/models", forwarded_for: str = "") -> float:
        """How long the request waited."""
        headers = [(b"authorization", key.encode())] if key else []
        headers += [(b"x-forwarded-for", forwarded_for.encode())] if forwarded_for else []
        began_s = now_s()
        await self.serve({"path": path, "headers": headers, SCOPE_KEY: Connection(network)})
        return now_s() - began_s

    async def serve(self, scope: Any) -> None:
        await self._pace.serve(self.app, scope, None, self._send)

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    def revoke(self, key: str) -> None:
        del self._keys[key]

    async def flood(self, count: int, network: str, key: str = "") -> list[asyncio.Task[float]]:
        """So many requests at once."""
        tasks = [asyncio.create_task(self.ask(network, key)) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks


@in_virtual_time
async def test_a_network_has_a_burst_and_then_its_share_and_others_do_not_wait() -> None:
    gateway = Gateway()
    began_s = now_s()
    flood = await gateway.flood(200, "noisy")
    assert await gateway.ask("honest") == 0
    await asyncio.gather(*flood)
    assert abs((200 * COST_S - NETWORK_BURST_S) / NETWORK_SHARE - (now_s() - began_s)) < 2 * COST_S / NETWORK_SHARE
    assert await gateway.ask("honest") == 0


@in_virtual_time
async def test_whose_key_is_known_is_paced_by_its_organization_wherever_it_asks_from() -> None:
    gateway = Gateway(a="A", b="B")
    await gateway.ask("office", "a")
    await gateway.ask("office", "b")
    strangers = await gateway.flood(200, "office")
    assert await gateway.ask("office", "a") == 0
    began_s = now_s()
    flood = await gateway.flood(100, "home", "b")
    assert await gateway.ask("office", "a") == 0
    await asyncio.gather(*flood)
    assert abs((101 * COST_S - OUTSIDE_BURST_S) / OUTSIDE_SHARE - (now_s() - began_s)) < 2 * COST_S / OUTSIDE_SHARE
    assert not all(each.done() for each in strangers)
    await asyncio.gather(*strangers)


@in_virtual_time
async def test_streams_of_events_that_have_ended_delay_no_page() -> None:
    """Fault: the next requests were taken to take as much of the loop as all of a stream."""
    gateway = Gateway(a="A")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope[SCOPE_KEY].organization_id = "A"
        for _ in range(180 if scope["path"] == "/admin/v1/events" else 1):
            gateway.worked_s += 0.003
            await asyncio.sleep(5.0 if scope["path"] == "/admin/v1/events" else 0.05)

    gateway.app = app
    await gateway.ask("office", "a")
    await asyncio.gather(*(gateway.ask("office", "a", "/admin/v1/events") for _ in range(4)))
    await asyncio.sleep(5)
    began_s = now_s()
    await asyncio.gather(*(gateway.ask("office", "a") for _ in range(20)))
    assert now_s() - began_s == pytest.approx(0.05)


@in_virtual_time
async def test_a_key_that_was_revoked_is_charged_to_its_network() -> None:
    """Fault: for five minutes who still had it used up the share of its organization."""
    gateway = Gateway(old="A", new="A")
    for key in ("old", "new"):
        await gateway.ask("office", key)
    gateway.revoke("old")
    await gateway.ask("elsewhere", "old")
    assert [message["status"] for message in gateway.sent] == [401]
    flood = await gateway.flood(500, "elsewhere", "old")
    assert await gateway.ask("office", "new") == 0
    for each in flood:
        each.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


@in_virtual_time
async def test_a_key_that_is_none_is_charged_to_its_network() -> None:
    gateway = Gateway()
    for number in range(20):
        await gateway.ask("noisy", f"guess {number}")
    assert await gateway.ask("noisy", "another") > 0
    assert await gateway.ask("honest", "another") == 0


@in_virtual_time
async def test_strangers_of_many_networks_share_and_an_idle_one_waits_for_one_round_at_most() -> None:
    gateway, networks = Gateway(), [f"noisy {number}" for number in range(60)]
    floods = [await gateway.flood(10, network) for network in networks]
    await asyncio.sleep(1)
    waited_s = await gateway.ask("honest")
    assert 0 < waited_s <= (len(networks) + 1) * COST_S / STRANGERS_SHARE
    gateway.served.clear()
    await asyncio.sleep(10)
    counts = Counter(gateway.served)
    assert abs(counts.total() * COST_S / 10 - STRANGERS_SHARE) < 0.01
    assert max(counts.values()) - min(counts.values()) <= 1, "networks take turns"
    assert len(counts) > 50
    for each in itertools.chain(*floods):
        each.cancel()


@in_virtual_time
async def test_probes_of_a_balancer_wait_for_nothing_else_that_comes_from_its_address() -> None:
    gateway = Gateway()
    flood = await gateway.flood(100, "balancer")
    for path in ("/healthz", "/readyz", "/health"):
        assert await gateway.ask("balancer", path=path) == 0
    for each in flood:
        each.cancel()


@in_virtual_time
async def test_behind_a_trusted_proxy_clients_are_distinguished_and_the_proxy_never_waits() -> None:
    gateway = Gateway()
    for _ in range(20):
        await gateway.ask("", forwarded_for="192.0.2.1, 203.0.113.9")
    assert await gateway.ask("", forwarded_for="203.0.113.9") > 0
    assert await gateway.ask("", forwarded_for="203.0.113.10") == 0
    for _ in range(100):
        assert await gateway.ask("") == 0


@in_virtual_time
async def test_who_has_left_is_not_served() -> None:
    gateway = Gateway()
    await asyncio.gather(*(await gateway.flood(20, "noisy")))
    gateway.served.clear()
    left = Connection("noisy")
    waiting = asyncio.create_task(gateway.serve({"path": "/", "headers": [], SCOPE_KEY: left}))
    await asyncio.sleep(0)
    assert left.on_gone is not None
    left.on_gone()
    await waiting
    assert gateway.served == []


@in_virtual_time
async def test_each_turn_of_the_loop_is_charged_until_limits_count_the_request() -> None:
    gateway, spent = Gateway(), []

    async def long(scope: Any, receive: Any, send: Any) -> None:
        connection = scope[SCOPE_KEY]
        for _ in range(10):
            gateway.worked_s += WORK_S
            await asyncio.sleep(1)
        spent.append(now_s())
        connection.organization_id = "o"
        connection.counted = True
        gateway.worked_s += 1_000

    scope = {"path": "/", "headers": [], SCOPE_KEY: Connection("stream")}
    await gateway._pace.serve(long, scope, None, None)
    assert spent
    assert gateway._pace._shares.outside.free("o")
    waiting = await gateway.flood(12, "stream")
    assert not all(each.done() for each in waiting)
    await asyncio.gather(*waiting)


@in_virtual_time
async def test_many_that_begin_at_once_are_no_debt_of_minutes() -> None:
    """240 lists of one tenant began together, each charged when it was done, and locked it out for the minute after."""
    gateway = Gateway(a="A")

    async def asks_the_database(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.05)
        await gateway(scope, receive, send)

    def scope() -> dict[str, Any]:
        return {"path": "/", "headers": [(b"authorization", b"a")], SCOPE_KEY: Connection("n")}

    for _ in range(10):
        await gateway._pace.serve(asks_the_database, scope(), None, None)
    await asyncio.sleep(60)
    gateway.worked_s, began_s = 0.0, now_s()
    flood = [asyncio.create_task(gateway._pace.serve(asks_the_database, scope(), None, None)) for _ in range(240)]
    while not all(each.done() for each in flood):
        await asyncio.sleep(0.1)
        most_s = OUTSIDE_BURST_S + (now_s() - began_s) * OUTSIDE_SHARE
        assert gateway.worked_s <= most_s + 2 * WORK_S
    assert now_s() - began_s == pytest.approx((240 * COST_S - OUTSIDE_BURST_S) / OUTSIDE_SHARE, rel=0.1)
    assert await gateway.ask("n", "a") < 1


@in_virtual_time
async def test_what_was_paid_in_advance_and_not_taken_is_given_back() -> None:
    gateway = Gateway()

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        """Takes no time."""

    for _ in range(1_000):
        await gateway._pace.serve(nothing, {"path": "/", "headers": [], SCOPE_KEY: Connection("n")}, None, None)
        await asyncio.sleep(REQUEST_S / NETWORK_SHARE)
    assert gateway._pace._shares.strangers._each.free("n")


@in_virtual_time
async def test_an_error_and_a_cancellation_reach_whom_they_are_meant_for() -> None:
    gateway, heard = Gateway(), []

    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("no")

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        except TimeoutError:
            heard.append("timeout")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    def scope() -> dict[str, Any]:
        return {"path": "/", "headers": [], SCOPE_KEY: Connection("n")}

    (error,) = await asyncio.gather(gateway._pace.serve(fails, scope(), None, None), return_exceptions=True)
    assert isinstance(error, ValueError)
    task = asyncio.create_task(gateway._pace.serve(waits, scope(), None, None))
    await asyncio.sleep(7)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert heard == ["timeout", "cancelled"]


def test_credentials_are_forgotten_after_a_while_and_when_there_are_too_many() -> None:
    time_s = 0.0
    known = KnownCredentials(lambda: time_s)
    first = known.digest({b"authorization": b"Bearer a"})
    assert known.digest({}) == b""
    assert first != known.digest({b"x-api-key": b"Bearer a"})
    known.learn(first, "o")
    assert known.find(first) == "o"
    time_s = KNOWN_S
    assert known.find(first) == ""
    known.learn(first, "o")
    for number in range(MAX_KNOWN):
        known.learn(b"%d" % number, f"{number // MAX_OF_ORGANIZATION}")
    assert known.find(first) == ""
    assert len(known._known) == MAX_KNOWN


def test_an_organization_with_many_cookies_makes_no_other_forgotten() -> None:
    known = KnownCredentials(lambda: 0.0)
    known.learn(b"first", "o")
    for number in range(2 * MAX_KNOWN):
        known.learn(known.digest({b"authorization": b"Bearer a", b"cookie": b"%d" % number}), "noisy")
    assert known.find(b"first") == "o"
    known.learn(b"first", "p")
    assert known.find(b"first") == "p"
    assert len(known._known) == MAX_OF_ORGANIZATION + 1
