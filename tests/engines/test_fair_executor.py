"""Tokenizing in threads: turns, shares, work nobody waits for any more, and an answer to everyone who waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from contracts.errors import Draining, InternalError, InvalidField, RateLimited
from engines.tokenizer.config import TokenizingConfig
from engines.tokenizer.fair_executor import FairExecutor


class Gate:
    """Work that stays in its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.open.wait(30)


@pytest.fixture
async def one() -> AsyncIterator[FairExecutor]:
    executor = FairExecutor(TokenizingConfig(threads=1, organization_jobs=3))
    yield executor
    executor.close()


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.wait, 30)


def noting(done: list[str], name: str) -> Callable[[], None]:
    return lambda: done.append(name)


async def test_results_come_back_in_turns_of_the_organizations(one: FairExecutor) -> None:
    done: list[str] = []
    gate = Gate()
    held = asyncio.create_task(one.run("flooder", 1, gate))
    await entered(gate)
    waiting = [asyncio.create_task(one.run("flooder", 1, noting(done, name))) for name in ("flood 1", "flood 2")]
    waiting.append(asyncio.create_task(one.run("other", 1, noting(done, "other"))))
    await asyncio.sleep(0)
    gate.open.set()
    await asyncio.gather(held, *waiting)
    assert done == ["other", "flood 1", "flood 2"]
    assert await one.run("other", 1, lambda: 42) == 42


async def test_a_flood_leaves_a_thread_to_the_others() -> None:
    executor = FairExecutor(TokenizingConfig(threads=2))
    gate = Gate()
    flood = [asyncio.create_task(executor.run("flooder", 1, gate)) for _ in range(5)]
    await entered(gate)
    assert await executor.run("other", 1, lambda: "at once") == "at once"
    gate.open.set()
    await asyncio.gather(*flood)
    executor.close()


async def test_an_organization_over_its_share_is_refused_and_others_are_not(one: FairExecutor) -> None:
    gate = Gate()
    held = [asyncio.create_task(one.run("flooder", 1, gate)) for _ in range(3)]
    await entered(gate)
    with pytest.raises(RateLimited):
        await one.run("flooder", 1, lambda: None)
    other = asyncio.create_task(one.run("other", 1, lambda: "served"))
    gate.open.set()
    assert await other == "served"
    await asyncio.gather(*held)
    assert await one.run("flooder", 1, lambda: "again") == "again"


async def test_work_whose_client_has_left_is_not_done_and_frees_its_share(one: FairExecutor) -> None:
    done: list[str] = []
    gate = Gate()
    held = asyncio.create_task(one.run("a", 1, gate))
    await entered(gate)
    left = [asyncio.create_task(one.run("a", 1, noting(done, "left"))) for _ in range(2)]
    await asyncio.sleep(0)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    stayed = [asyncio.create_task(one.run("a", 1, noting(done, "stayed"))) for _ in range(2)]
    gate.open.set()
    await asyncio.gather(held, *stayed)
    assert done == ["stayed", "stayed"]


async def test_a_client_that_leaves_in_its_turn_does_not_free_the_thread_early(one: FairExecutor) -> None:
    gate = Gate()
    held = asyncio.create_task(one.run("a", 1, gate))
    await entered(gate)
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    following = asyncio.create_task(one.run("a", 1, lambda: "done"))
    await asyncio.sleep(0)
    assert one._idle == 0
    gate.open.set()
    assert await following == "done"


class Panic(BaseException):
    """As pyo3 raises when Rust panics."""


@pytest.mark.parametrize("error", [StopIteration(), ValueError("secret"), Panic(), RecursionError()])
async def test_whatever_fails_in_a_thread_ends_the_wait_with_an_error_of_ours(
    one: FairExecutor, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> Any:
        raise error

    async with asyncio.timeout(20):
        with pytest.raises(InternalError) as caught:
            await one.run("a", 1, fail)
    assert "secret" not in caught.value.message
    assert "tokenizing failed" in caplog.text
    assert await one.run("a", 1, lambda: "next") == "next"


async def test_an_error_of_ours_stays_what_it_is(one: FairExecutor) -> None:
    def fail() -> None:
        raise InvalidField("no", param="messages")

    with pytest.raises(InvalidField) as caught:
        await one.run("a", 1, fail)
    assert caught.value.param == "messages"


async def test_closing_refuses_what_waits_and_what_comes(one: FairExecutor) -> None:
    gate = Gate()
    held = asyncio.create_task(one.run("a", 1, gate))
    await entered(gate)
    waiting = asyncio.create_task(one.run("a", 1, lambda: None))
    await asyncio.sleep(0)
    one.close()
    with pytest.raises(Draining):
        await waiting
    with pytest.raises(Draining):
        await one.run("b", 1, lambda: None)
    gate.open.set()
    await held
