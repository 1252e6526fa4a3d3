"""On a clock that only the test turns: each part of a request's way is in its phase, whole, and in no other one."""

from __future__ import annotations

import asyncio

import msgspec

from contracts.lease import Lease, LeaseRequest
from contracts.phases import Phase, PhaseClock
from tests.gateway.serving.client import Client
from tests.gateway.serving.harness import GUARD_S, Harness, harness
from tests.gateway.serving.stepped_engine import SteppedEngine, stepped_engine

PARTS_S = {
    "reserve": 1.0, "opened": 2.0, "queued": 4.0, "acquire": 8.0, "placed": 16.0,
    "role to text": 32.0, "text to end": 64.0, "closed": 128.0, "settle": 256.0,
}  # fmt: skip
"""Powers of two: each sum says of which parts it is."""


class Hands:
    """A clock's time, which stands still until it is turned."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def turn(self, part: str) -> None:
        self.now_s += PARTS_S[part]


def queued(platform: Harness, hands: Hands) -> None:
    """The router says how long it held each request in its queue."""
    acquire = platform.router.acquire

    async def held(ask: LeaseRequest) -> Lease:
        hands.turn("queued")
        return msgspec.structs.replace(await acquire(ask), queued_s=PARTS_S["queued"])

    platform.router.acquire = held  # type: ignore[method-assign]


async def answer(engine: SteppedEngine, client: Client, hands: Hands) -> None:
    """A role, a text, and the end."""
    await engine.say("")
    await client.reads(b"server-timing")
    hands.turn("role to text")
    await engine.say("a")
    await client.reads(b'"a"')
    hands.turn("text to end")
    await engine.say(ends=True, tokens=1)


async def test_each_part_of_the_way_is_in_its_phase_and_in_no_other() -> None:
    async with stepped_engine() as (engine, place), harness(engines=0) as platform, asyncio.timeout(GUARD_S):
        platform.router.engines = (place,)
        hands, client, request = Hands(), Client(), await platform.request()
        request.clock = PhaseClock(hands)
        queued(platform, hands)
        for step in ("reserve", "opened", "acquire", "placed", "closed", "settle"):
            platform.faults.calls[step] = lambda step=step: hands.turn(step)  # type: ignore[misc]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(answer(engine, client, hands))
            await platform.run(request, client)
        assert request.clock.as_ms() == {
            Phase.LIMIT: 3e3,
            Phase.QUEUE: 4e3,
            Phase.ROUTE: 8e3,
            Phase.ENGINE: 16e3,
            Phase.FIRST_TOKEN: 32e3,
            Phase.DECODE: 64e3,
            Phase.STREAM: 384e3,
        }
        assert (
            client.answer.headers["server-timing"]
            == "limit;dur=3000.0, queue;dur=4000.0, route;dur=8000.0, engine;dur=16000.0"
        )
