"""What a service without a working engine answers, and what the gateway's driver makes of that."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from contracts.errors import EngineFailed, Overloaded, SlipstreamError
from engines.drivers import registry as drivers
from engines.drivers.error_bodies import event_error
from engines.embedded.config import EngineConfig, SchedulerConfig
from engines.embedded.engine import Engine
from engines.embedded.http.errors import error_answer, error_event
from engines.embedded.live import LiveRequest
from engines.embedded.output import Delta
from engines.embedded.service import Service
from engines.embedded.worker import EngineWorker
from tests.engines.embedded.served import served
from tests.engines.embedded.tiny import SHIPPED, request


def refusal(service: Service) -> SlipstreamError:
    with pytest.raises(SlipstreamError) as refused:
        service.submit(request("r", [1, 2, 3]))
    return refused.value


@pytest.mark.parametrize("broken", [False, True])
async def test_a_broken_engine_has_failed_and_one_that_loads_is_not_ready(broken: bool) -> None:
    service = Service(EngineConfig(model=str(SHIPPED / "slipstream-chat")))
    if broken:
        service._fail(RuntimeError("a defect"))
    status, body = error_answer(refusal(service))
    assert status == (500 if broken else 503)
    read = drivers.get("embedded").error(status, body)
    assert type(read) is (EngineFailed if broken else Overloaded), "the router's breaker learns of failures only"


def test_an_engine_that_breaks_down_under_a_request_has_failed() -> None:
    broke = EngineFailed("The engine failed.")
    driver = drivers.get("embedded")
    assert type(driver.error(*error_answer(broke))) is EngineFailed
    event = error_event(broke).removeprefix(b"data: ")
    assert type(event_error(event, driver.error)) is EngineFailed


async def test_a_question_to_an_engine_that_has_ended_fails() -> None:
    def build() -> Engine:
        raise RuntimeError("a defect")

    failures: list[BaseException] = []
    worker = EngineWorker(build, lambda _: None, lambda _: None, failures.append)
    worker.start()
    with pytest.raises(EngineFailed, match="has stopped"):
        await worker.ask(lambda engine: engine.flush_cache())
    await worker.stop()
    assert [str(failure) for failure in failures] == ["a defect"]


async def test_output_that_cannot_be_formatted_fails_its_own_request_alone() -> None:
    def relay() -> bool:
        raise TypeError("a defect")

    service = Service(EngineConfig(model=str(SHIPPED / "slipstream-chat")))
    service.live = {rid: LiveRequest(request(rid, [1, 2, 3])) for rid in ("bad", "good")}
    service.live["bad"].relay = relay
    service._deliver([Delta("bad", 0, "a", 3, 1, 0), Delta("good", 0, "b", 3, 1, 0)])
    assert [delta.text for delta in await service.live["good"].news()] == ["b"]
    with pytest.raises(EngineFailed):
        service.live["bad"].take()


async def test_a_queue_that_one_organization_has_filled_takes_another_up_to_its_part() -> None:
    scheduler = SchedulerConfig(max_running=4, max_queued=6)
    async with served_with(scheduler) as service:

        def taken(rid: str, organization: str, choices: int) -> bool:
            asked = request(rid, [1, 2, 3], choices=choices, max_tokens=4_000, cache_salt=organization)
            try:
                service.submit(asked)
            except Overloaded:
                return False
            return True

        assert taken("all of it", "mallory", 10)
        assert not taken("more", "mallory", 1)
        assert taken("half", "acme", 5)
        assert not taken("more than half", "acme", 1)
        assert taken("a third", "other", 3)
        assert not taken("again", "other", 1)


@contextlib.asynccontextmanager
async def served_with(scheduler: SchedulerConfig) -> AsyncIterator[Service]:
    async with served(model=str(SHIPPED / "slipstream-chat"), scheduler=msgspec.to_builtins(scheduler)) as engine:
        yield engine.service
        engine.service.abort("", prefix=True)
