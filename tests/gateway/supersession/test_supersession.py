"""Keystrokes in flight at one gateway: who ends whom, and that a task hears it where it waits and nowhere else."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from gateway.supersession.in_flight_request import InFlightRequest, Superseded
from gateway.supersession.lineage import Digests, Keystroke
from gateway.supersession.supersession import LOOKED_AT, Supersession
from tests.gateway.serving.harness import GUARD_S
from tests.gateway.supersession.serving import served
from tests.gateway.supersession.test_lineage import keystroke


@pytest.fixture
def supersession() -> Supersession:
    return Supersession(Digests(b"secret"))


def test_a_newer_keystroke_ends_all_older_ones_of_its_lineage(supersession: Supersession) -> None:
    with (
        served(supersession, "1", keystroke("a", "")) as first,
        served(supersession, "2", keystroke("ab", "")) as second,
        served(supersession, "3", keystroke("x", "")) as other,
        served(supersession, "4", keystroke("abc", "")) as last,
        served(supersession, "5", None) as alone,
    ):
        assert [flight.by for flight in (first, second, other, last, alone)] == ["2", "4", None, None, None]
        assert len(supersession) == 4
    assert len(supersession) == 0
    assert not supersession._in_flight


@pytest.mark.parametrize("later", ["ab", "abc"])
def test_who_goes_on_keeps_the_one_whose_answer_it_shares(supersession: Supersession, later: str) -> None:
    """A request for the same prefix is not typed on, so the one that reads `first` goes on reading it."""
    with (
        served(supersession, "1", keystroke("a", "")) as first,
        served(supersession, "2", keystroke("ab", ""), spared="1") as reader,
        served(supersession, "3", keystroke(later, "")),
    ):
        assert [first.by, reader.by] == ([None, None] if later == "ab" else ["3", "3"])


def test_what_has_ended_is_not_ended_again(supersession: Supersession) -> None:
    with served(supersession, "1", keystroke("a", "")) as first:
        pass
    with served(supersession, "2", keystroke("ab", "")):
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


async def test_room_is_made_only_where_those_it_was_typed_on_are_enough(supersession: Supersession) -> None:
    over = asyncio.Event()

    async def serve() -> None:
        with served(supersession, "1", keystroke("a", "")) as first:
            await over.wait()
            assert first.by == "2"

    task = asyncio.create_task(serve())
    await asyncio.sleep(0)
    with supersession.registered("2", keystroke("ab", "")) as flight:
        (first, _) = next(iter(supersession._in_flight.values())).values()
        assert not await supersession.make_room(flight, 0, GUARD_S), "something else is missing"
        assert not await supersession.make_room(flight, 2, GUARD_S), "one is not enough"
        assert first.by is None
        assert not await supersession.make_room(flight, 1, 0.001), "it takes too long"
        over.set()
        assert await supersession.make_room(flight, 1, GUARD_S)
    with supersession.registered("3", keystroke("abc", "")) as alone:
        assert not await supersession.make_room(alone, 1, GUARD_S), "there are none"
    with supersession.registered("4", None) as nobodys:
        assert not await supersession.make_room(nobodys, 1, GUARD_S)
    await task


def test_who_is_refused_has_ended_nobody_and_is_not_announced() -> None:
    announced: list[str] = []

    class Elsewhere:
        def announce(self, request: InFlightRequest, keystroke: Keystroke, lineage: bytes) -> None:
            announced.append(request.request_id)

    supersession = Supersession(Digests(b"secret"), Elsewhere())
    with served(supersession, "1", keystroke("a", "")) as first:
        with supersession.registered("2", keystroke("ab", "")):
            pass
        assert (first.by, announced) == (None, ["1"])
        with served(supersession, "3", keystroke("abc", "")):
            assert (first.by, announced) == ("3", ["1", "3"])


def test_who_is_overtaken_while_its_reservation_is_made_ends_nobody(supersession: Supersession) -> None:
    with (
        supersession.registered("1", keystroke("a", "")) as slow,
        served(supersession, "2", keystroke("ab", "")) as fast,
    ):
        supersession.supersede_older(slow)
        assert (slow.by, fast.by) == ("2", None)


def test_a_burst_costs_each_request_one_digest_and_a_few_comparisons() -> None:
    digested: list[Keystroke] = []

    class Counting(Digests):
        def lineage(self, keystroke: Keystroke) -> bytes:
            digested.append(keystroke)
            return super().lineage(keystroke)

    class Elsewhere:
        def announce(self, request: InFlightRequest, keystroke: Keystroke, lineage: bytes) -> None:
            assert lineage == Digests(b"secret").lineage(keystroke)

    supersession = Supersession(Counting(b"secret"), Elsewhere())
    waiting = LOOKED_AT + 4
    with contextlib.ExitStack() as stack:
        flights = [
            stack.enter_context(supersession.registered(str(at), keystroke("a" * (at + 1), "")))
            for at in range(waiting)
        ]
        stack.enter_context(served(supersession, "newest", keystroke("a" * (waiting + 1), "")))
        ended = LOOKED_AT - 1
        assert [flight.by for flight in flights] == [None] * (waiting - ended) + ["newest"] * ended
        assert len(digested) == waiting + 1
