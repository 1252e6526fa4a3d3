"""A load report that no longer comes is not taken for the present, whatever it said last."""

from __future__ import annotations

import asyncio
import logging

import pytest

from contracts.errors import EngineFailed
from engines.drivers.base import Load
from router.config import RouterConfig
from router.control.messages import NO_LOAD_REPORT, replica
from router.core.decisions import Granted
from router.core.events import ReplicaPolled
from router.core.replica import STALE_MISSES
from router.health import HealthPoller, Target
from tests.router.core_driver import Core
from tests.router.fakes import FakeDriver, FakeEngines, fleet

FULL = {"running": 4, "waiting": 40, "used_tokens": 1_000, "capacity_tokens": 1_000, "max_running": 4}


def missed(core: Core, times: int = STALE_MISSES) -> None:
    for _ in range(times):
        core.do(ReplicaPolled("r1", True, load_failed=True))


def test_an_engine_that_was_full_when_its_reports_ended_is_used_again() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", **FULL)
    assert not [each for each in core.ask("waits") if isinstance(each, Granted)]

    missed(core, STALE_MISSES - 1)
    assert core.core.fleet.replicas["r1"].leases == 0
    missed(core, 1)

    engine = core.core.fleet.replicas["r1"]
    assert (engine.leases, engine.foreign, engine.load_is_stale) == (1, 0, True)
    assert engine.kv_used_ratio is None
    assert replica(core.core, engine).detail == NO_LOAD_REPORT


def test_an_engine_that_was_empty_when_its_reports_ended_is_given_no_more_than_it_holds() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1_000))
    core.polled("r1", capacity_tokens=100)
    for number in range(3):
        core.placed(f"lease-a-{number}")  # 20 tokens each, with its answer
    core.polled("r1", capacity_tokens=100, running=3, used_tokens=0)

    missed(core)

    headroom = core.core.fleet.replicas["r1"].headroom_tokens
    assert headroom == 100 - 3 * 20
    core.began("lease-a-0")
    core.over("lease-a-0")
    assert core.core.fleet.replicas["r1"].headroom_tokens == 100 - 2 * 20


def test_reports_that_come_again_count_again() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", capacity_tokens=100)
    missed(core)
    core.polled("r1", capacity_tokens=100, used_tokens=30)

    engine = core.core.fleet.replicas["r1"]
    assert (engine.load_is_stale, engine.headroom_tokens, engine.kv_used_ratio) == (False, 70, 0.3)
    assert replica(core.core, engine).detail == ""


def test_an_engine_with_nothing_new_to_report_is_not_stale() -> None:
    """TensorRT-LLM reports a step once: an idle engine has none."""
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", capacity_tokens=100, used_tokens=90)
    for _ in range(10 * STALE_MISSES):
        core.do(ReplicaPolled("r1", True))

    engine = core.core.fleet.replicas["r1"]
    assert (engine.load_is_stale, engine.headroom_tokens) == (False, 10)


def test_an_engine_that_never_reports_is_not_stale() -> None:
    core = Core(fleet(replicas=("r1",)))
    missed(core, 10 * STALE_MISSES)

    engine = core.core.fleet.replicas["r1"]
    assert (engine.load_is_stale, engine.load) == (False, Load())


async def test_why_a_load_report_is_missing_is_logged_once(
    engines: FakeEngines, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreadable(FakeDriver):
        fails = True

        def parse_load(self, body: bytes) -> Load:
            if self.fails:
                raise EngineFailed("The engine's load report cannot be read.")
            return Load(running=1)

    url = "http://127.0.0.1/r1"
    driver, reports = Unreadable(), asyncio.Queue[ReplicaPolled]()
    poller = HealthPoller(RouterConfig(poll_interval_s=0.01), engines, lambda name: driver, reports.put_nowait)
    with caplog.at_level(logging.INFO, "router.health"):
        poller.follow({"r1": Target(url, "fake")})
        for _ in range(5):
            report = await reports.get()
            assert (report.load, report.load_failed) == (None, True)
        driver.fails = False
        while (await reports.get()).load is None:
            pass
    await poller.stop()

    said = [record.message for record in caplog.records if "load" in record.message]
    assert said == [
        f"{url} reports no load, placement goes by our own leases: The engine's load report cannot be read.",
        f"{url} reports its load again",
    ]
