"""Keystrokes in flight at one gateway: who ends whom, and that a task hears it where it waits and nowhere else."""

from __future__ import annotations

import asyncio

import pytest

from gateway.supersession.in_flight_request import InFlightRequest, Superseded
from gateway.supersession.lineage import Digests
from gateway.supersession.supersession import Supersession
from tests.gateway.supersession.test_lineage import keystroke


@pytest.fixture
def supersession() -> Supersession:
    return Supersession(Digests(b"secret"))


def test_a_newer_keystroke_ends_all_older_ones_of_its_lineage(supersession: Supersession) -> None:
    with (
        supersession.registered("1", keystroke("a", "")) as first,
        supersession.registered("2", keystroke("ab", "")) as second,
        supersession.registered("3", keystroke("x", "")) as other,
        supersession.registered("4", keystroke("abc", "")) as last,
        supersession.registered("5", None) as alone,
    ):
        assert [flight.by for flight in (first, second, other, last, alone)] == ["2", "4", None, None, None]
        assert len(supersession) == 4
    assert len(supersession) == 0
    assert not supersession._in_flight


def test_what_has_ended_is_not_ended_again(supersession: Supersession) -> None:
    with supersession.registered("1", keystroke("a", "")) as first:
        pass
    with supersession.registered("2", keystroke("ab", "")):
        assert first.by is None


async def test_a_wait_inside_the_block_ends_and_one_outside_goes_on() -> None:
    flight, steps = InFlightRequest("1", None), []
    waiting = asyncio.Event()

    async def serve() -> None:
        try:
            async with flight:
                waiting.set()
                await asyncio.Event().wait()
        except Superseded as newer:
            steps.append(newer.by)
        await asyncio.sleep(0)
        steps.append("books closed")
        with pytest.raises(Superseded):
            async with flight:
                steps.append("never")

    task = asyncio.create_task(serve())
    await waiting.wait()
    flight.supersede("2")
    flight.supersede("3")
    await task
    assert steps == ["2", "books closed"]
    assert task.cancelling() == 0


async def test_what_comes_outside_the_block_is_heard_at_the_next() -> None:
    flight = InFlightRequest("1", None)
    async with flight:
        pass
    flight.supersede("2")
    await asyncio.sleep(0)
    with pytest.raises(Superseded):
        async with flight:
            pytest.fail("entered")


async def test_a_task_that_is_stopped_at_the_same_time_is_stopped() -> None:
    flight, waiting = InFlightRequest("1", None), asyncio.Event()

    async def serve() -> None:
        async with flight:
            waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await waiting.wait()
    flight.supersede("2")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_block_that_ends_without_waiting_again_is_not_cancelled_later() -> None:
    flight = InFlightRequest("1", None)

    async def serve() -> str:
        async with flight:
            flight.supersede("2")
        await asyncio.sleep(0)
        return "books closed"

    task = asyncio.create_task(serve())
    assert await task == "books closed"
    assert task.cancelling() == 0


async def test_a_block_that_has_ended_keeps_what_it_took_also_when_the_task_is_stopped_at_the_same_time() -> None:
    flight, steps = InFlightRequest("1", None), []

    async def serve() -> None:
        task = asyncio.current_task()
        assert task is not None
        async with flight:
            flight.supersede("2")
            task.cancel()
        steps.append("has what it took")
        try:
            await asyncio.sleep(0)
        finally:
            steps.append("gave it back")

    task = asyncio.create_task(serve())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["has what it took", "gave it back"]
    assert task.cancelling() == 1


async def test_who_ends_others_hears_when_they_are_over(supersession: Supersession) -> None:
    over = asyncio.Event()

    async def older() -> None:
        with supersession.registered("1", keystroke("a", "")):
            await over.wait()

    task = asyncio.create_task(older())
    await asyncio.sleep(0)
    with supersession.registered("2", keystroke("ab", "")) as flight:
        assert not await flight.others_ended(0.001), "it takes too long"
        over.set()
        assert await flight.others_ended(20)
    with supersession.registered("3", keystroke("abc", "")) as alone:
        assert not await alone.others_ended(20), "there are none"
    await task
