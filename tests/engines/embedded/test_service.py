"""What a service without a working engine answers, and what the gateway's driver makes of that."""

from __future__ import annotations

import pytest

from contracts.errors import EngineFailed, Overloaded, SlipstreamError
from engines.drivers import registry as drivers
from engines.drivers.error_bodies import event_error
from engines.embedded.config import EngineConfig
from engines.embedded.http.errors import error_answer, error_event
from engines.embedded.service import Service
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
    broke = EngineFailed("The engine broke down.")
    driver = drivers.get("embedded")
    assert type(driver.error(*error_answer(broke))) is EngineFailed
    event = error_event(broke).removeprefix(b"data: ")
    assert type(event_error(event, driver.error)) is EngineFailed
