"""What the time of a request is called that waited for a place and was given none."""

from __future__ import annotations

import pytest

from contracts.errors import NoEngine, Overloaded, RouterUnavailable, SlipstreamError
from contracts.phases import Phase
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import harness


@pytest.mark.parametrize(
    ("refusal", "phase"),
    [
        (Overloaded("full", retry_after_s=1), Phase.QUEUE),
        (NoEngine("none", retry_after_s=1), Phase.QUEUE),
        (RouterUnavailable("away", retry_after_s=1), Phase.ROUTE),
    ],
    ids=["the queue's deadline", "no engine", "no router"],
)
async def test_a_wait_that_ends_in_a_refusal_is_not_the_streams(refusal: SlipstreamError, phase: Phase) -> None:
    async with harness(engines=1) as platform:
        client, request = Client(), await platform.request()
        waited: list[float] = []

        def wait() -> None:
            waited.append(request.clock.age_s)
            platform.faults.raises["acquire"] = refusal

        platform.faults.calls["acquire"] = wait
        await platform.run(request, client)
        assert client.answer.status == 503
        spent = request.clock.durations_s
        assert waited
        assert (Phase.QUEUE in spent, Phase.ROUTE in spent) == (phase is Phase.QUEUE, phase is Phase.ROUTE)
        assert list(spent)[-2:] == [phase, Phase.STREAM], "the stream's begins where the wait has ended"
        platform.require_balanced()
