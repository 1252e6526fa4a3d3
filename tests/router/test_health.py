"""Polling through a driver: failing, recovering, being asked to look at once."""

from __future__ import annotations

import asyncio
import socket

from contracts.errors import ConfigError
from contracts.lease import LeaseEnd
from contracts.usage import Finish
from engines.drivers.base import Driver, Load
from router.config import RouterConfig
from router.core.events import ReplicaPolled
from router.core.replica import Health
from router.health import HealthPoller, Target
from tests.deployment import free_port
from tests.other_account import listening_as_another_account
from tests.router.fakes import Connect, FakeDriver, FakeEngines, StartRouter, ask, fleet
from tests.virtual_time import in_virtual_time
from tests.waiting import eventually

R1 = "http://127.0.0.1/r1"


class Heard:
    """Collects what a poller reports."""

    def __init__(self, engines: FakeEngines, driver: Driver | None = None, **settings: float) -> None:
        self.reports: asyncio.Queue[ReplicaPolled] = asyncio.Queue()
        self.driver = driver
        config = RouterConfig(**{"poll_interval_s": 60.0, "recovery_interval_s": 0.01, **settings})  # type: ignore[arg-type]
        self.poller = HealthPoller(config, engines, self.driver_of, self.reports.put_nowait)

    def driver_of(self, name: str) -> Driver:
        if name != "fake":
            raise ConfigError(f"no driver named {name!r}")
        return self.driver or FakeDriver()

    async def next(self) -> ReplicaPolled:
        return await self.reports.get()


@in_virtual_time
async def test_health_and_load_are_reported_at_once(engines: FakeEngines) -> None:
    engines.running[R1] = 5
    heard = Heard(engines)
    heard.poller.follow({"r1": Target(R1, "fake")})
    report = await heard.next()
    assert (report.replica_id, report.healthy, report.load and report.load.running) == ("r1", True, 5)
    await heard.poller.stop()


async def test_an_engine_of_this_account_gets_no_key_while_another_account_has_its_port(engines: FakeEngines) -> None:
    with listening_as_another_account(free_port()) as port:  # it is given up and taken again
        url = f"http://127.0.0.1:{port}"
        config = RouterConfig(recovery_interval_s=0.01)
        reports: asyncio.Queue[ReplicaPolled] = asyncio.Queue()
        poller = HealthPoller(config, engines, lambda _: FakeDriver(), reports.put_nowait, {url})
        poller.follow({"r1": Target(url, "fake")})
        report = await reports.get()
        assert not report.healthy
        assert f"a program of the account nobody listens on its port {port}; stop that program" in report.detail
    while (report := await reports.get()).detail != f"nothing listens on its port {port} yet":
        pass
    assert engines.polls == []
    with socket.create_server(("127.0.0.1", port)), listening_as_another_account(port, "127.0.0.2"):
        while not (await reports.get()).healthy:  # what listens on another address gets none of its connections
            pass
        assert engines.polls == [url]
    await poller.stop()


@in_virtual_time
async def test_a_failing_replica_is_polled_until_it_recovers(engines: FakeEngines) -> None:
    engines.status[R1] = 0
    heard = Heard(engines)
    heard.poller.follow({"r1": Target(R1, "fake")})
    first = await heard.next()
    assert (first.healthy, first.detail) == (False, "connection refused")
    engines.status[R1] = 500
    while (report := await heard.next()).detail == "connection refused":
        pass
    assert (report.healthy, report.detail) == (False, "health check answered 500")
    engines.status[R1] = 200
    while not (await heard.next()).healthy:
        pass
    await heard.poller.stop()


@in_virtual_time
async def test_a_refused_key_is_said_with_where_to_set_it(engines: FakeEngines) -> None:
    engines.status[R1] = 401
    heard = Heard(engines)
    heard.poller.follow({"r1": Target(R1, "fake", "upstream")})
    report = await heard.next()
    assert not report.healthy
    assert report.detail == "it refuses our key (401); see api_key_file and api_key_env of pool 'upstream'"
    await heard.poller.stop()


@in_virtual_time
async def test_a_fault_is_looked_into_without_waiting_for_the_next_turn(engines: FakeEngines) -> None:
    heard = Heard(engines, poll_interval_s=60.0)
    heard.poller.follow({"r1": Target(R1, "fake")})
    assert (await heard.next()).healthy
    engines.status[R1] = 0
    heard.poller.poll_now("r1")
    assert not (await heard.next()).healthy
    await heard.poller.stop()


@in_virtual_time
async def test_a_poll_begun_before_the_fault_does_not_clear_it(engines: FakeEngines) -> None:
    engines.gate = asyncio.Event()
    heard = Heard(engines)
    heard.poller.follow({"r1": Target(R1, "fake")})
    await engines.polled.wait()
    heard.poller.poll_now("r1")
    engines.gate.set()
    assert (await heard.next()).healthy
    assert engines.polls == [R1, R1]
    await heard.poller.stop()


@in_virtual_time
async def test_an_unknown_dialect_and_a_broken_driver_cost_only_their_replica(engines: FakeEngines) -> None:
    class Broken(FakeDriver):
        def parse_load(self, body: bytes) -> Load:
            raise RuntimeError("defect")

    heard = Heard(engines, Broken())
    heard.poller.follow({"r1": Target(R1, "fake")})
    assert not (await heard.next()).healthy
    heard.poller.follow({"r2": Target(R1, "nonsense")})
    while (report := await heard.next()).replica_id != "r2":
        pass
    assert (report.healthy, report.detail) == (False, "no driver named 'nonsense'")
    await heard.poller.stop()


@in_virtual_time
async def test_replicas_no_longer_followed_are_left_alone(engines: FakeEngines) -> None:
    heard = Heard(engines, poll_interval_s=0.01)
    heard.poller.follow({"r1": Target(R1, "fake"), "r2": Target("http://127.0.0.1/r2", "fake")})
    await heard.next()
    await heard.next()
    heard.poller.follow({"r2": Target("http://127.0.0.1/r2", "fake")})
    engines.polls.clear()
    while len(engines.polls) < 3:
        await engines.next_poll()
    assert set(engines.polls) == {"http://127.0.0.1/r2"}
    await heard.poller.stop()


async def test_an_engine_that_died_is_found_out_by_the_first_fault(
    start_router: StartRouter, connect: Connect, engines: FakeEngines
) -> None:
    router = await start_router(poll_interval_s=60.0, recovery_interval_s=0.01, failure_threshold=3)
    client = await connect(router.port)
    client.publish(fleet(replicas=("r1", "r2")))
    first = await client.acquire(ask("l1", excluded=("r2",)))
    engines.status[R1] = 0
    client.release(LeaseEnd(first.lease_id, Finish.ENGINE_ERROR, engine_fault=True))
    await eventually(lambda: router.dispatcher.fleet.replicas["r1"].health is Health.UNHEALTHY)
    assert (await client.acquire(ask("l2"))).engine.replica_id == "r2"
    engines.status[R1] = 200
    await eventually(lambda: router.dispatcher.fleet.replicas["r1"].health is Health.HEALTHY)
