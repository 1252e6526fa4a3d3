"""Polls that this process cannot send for want of descriptors say nothing about the replicas."""

from __future__ import annotations

from contracts.errors import ConnectionsExhausted
from engines.drivers.base import EngineRequest
from router.config import RouterConfig
from router.core.events import ReplicaPolled
from router.health import HealthPoller, Target
from tests.router.fakes import FakeDriver
from tests.waiting import eventually

URL = "http://127.0.0.1/r1"


class Exhausted:
    """The connections of a process that has descriptors again after a while."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.polls = 0

    async def fetch(
        self, url: str, request: EngineRequest, timeout_s: float, *, pool_name: str = ""
    ) -> tuple[int, bytes]:
        self.polls += request.path != "/load"
        if self.polls <= self.failures:
            raise ConnectionsExhausted("no descriptor left")
        return 200, b"0"


async def test_a_router_without_descriptors_takes_no_replica_out_and_goes_on_polling() -> None:
    reports: list[ReplicaPolled] = []
    config = RouterConfig(poll_interval_s=60.0, recovery_interval_s=0.001)
    exhausted = Exhausted(failures=5)
    poller = HealthPoller(config, exhausted, lambda name: FakeDriver(), reports.append)
    poller.follow({"r1": Target(URL, "fake")})
    await eventually(lambda: any(report.asked for report in reports))
    await poller.stop()
    assert [report.healthy for report in reports if report.asked] == [True]
    assert len(reports) == 6, "the core hears that it was not asked"
    assert exhausted.polls == 6
