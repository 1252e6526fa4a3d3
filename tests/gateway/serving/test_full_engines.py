"""How often the log hears of an engine that is full."""

from __future__ import annotations

import pytest

from contracts.errors import Overloaded
from contracts.lease import Engine
from gateway.serving.full_engines import LOG_EVERY_S, FullEngines


def test_one_line_for_each_pool_and_minute_counts_what_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    full = FullEngines(lambda: now_s)
    error = Overloaded("Full.", detail="status 429: slow down")
    for pool in ("a", "b"):
        for number in range(3):
            full.refused(f"req_{number}", Engine(f"{pool}-1", "http://x", "openai", "m", pool), error)
    now_s = LOG_EVERY_S
    full.refused("req_3", Engine("a-2", "http://x", "openai", "m", "a"), error)
    assert [record.getMessage() for record in caplog.records] == [
        "pool a: a-1 refused request req_0: Full. (status 429: slow down); 0 more since the last such line",
        "pool b: b-1 refused request req_0: Full. (status 429: slow down); 0 more since the last such line",
        "pool a: a-2 refused request req_3: Full. (status 429: slow down); 2 more since the last such line",
    ]
