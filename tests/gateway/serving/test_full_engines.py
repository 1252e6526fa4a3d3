"""How often the log hears of an engine that is full."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from contracts.errors import EngineFailed, Overloaded
from contracts.lease import Engine
from gateway.serving.full_engines import LOG_EVERY_S, FullEngines
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import body, harness


def attempt(request_id: str, engine: Engine) -> Any:
    return mock.Mock(failed_engine=engine, request=mock.Mock(request_id=request_id))


def test_one_line_for_each_pool_and_minute_counts_what_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    full = FullEngines(lambda: now_s)
    error = Overloaded("Full.", detail="status 429: slow down")
    for pool in ("a", "b"):
        for number in range(3):
            full.failed(attempt(f"req_{number}", Engine(f"{pool}-1", "http://x", "openai", "m", pool)), error)
    now_s = LOG_EVERY_S
    full.failed(attempt("req_3", Engine("a-2", "http://x", "openai", "m", "a")), error)
    full.failed(attempt("req_4", Engine("a-2", "http://x", "openai", "m", "a")), EngineFailed("Broken."))
    assert [record.getMessage() for record in caplog.records] == [
        "pool a: a-1 refused request req_0: Full. (status 429: slow down); 0 more since the last such line",
        "pool b: b-1 refused request req_0: Full. (status 429: slow down); 0 more since the last such line",
        "pool a: a-2 refused request req_3: Full. (status 429: slow down); 2 more since the last such line",
    ]


@pytest.mark.parametrize(("first_event_s", "within_s"), [(120.0, 30.0), (10.0, 5.0)])
async def test_an_engine_gets_the_longest_wait_in_its_queue(first_event_s: float, within_s: float) -> None:
    async with harness(engines=1, driver="embedded", first_event_timeout_s=first_event_s) as platform:
        await platform.serve(Client(), body(stream=True))
        (record,) = platform.engines[0].records.values()
        assert b'"start_within_s":%.1f' % within_s in bytes(record.body)
