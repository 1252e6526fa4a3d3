"""The watch turns a client that left into `ClientGone`, and leaves every other cancellation alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gateway.http.disconnect import ClientGone, ClientWatch

GUARD_S = 60.0


class Client:
    """A client's connection, as `gateway.http.client_connection.ClientConnection` shows it."""

    def __init__(self) -> None:
        self.on_gone: Callable[[], None] | None = None
        self.gone = False

    def leave(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()


def leaving_soon() -> Client:
    client = Client()
    asyncio.get_running_loop().call_soon(client.leave)
    return client


async def for_ever() -> None:
    await asyncio.Event().wait()


def cancel_requests() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def served(client: Client, block: Callable[[ClientWatch], Awaitable[None]]) -> None:
    async with asyncio.timeout(GUARD_S), ClientWatch(client) as watch:
        await block(watch)


async def test_nothing_is_begun_for_a_client_that_had_left_before() -> None:
    client, begun = Client(), []
    client.leave()

    async def block(_: ClientWatch) -> None:
        begun.append(True)

    with pytest.raises(ClientGone):
        await served(client, block)
    assert begun == []
    assert cancel_requests() == 0
    await asyncio.sleep(0)


async def test_a_block_that_ends_by_itself_is_not_disturbed_afterwards() -> None:
    client = Client()
    async with ClientWatch(client) as watch:
        await asyncio.sleep(0)
    client.leave()
    watch.cut()
    for _ in range(10):
        await asyncio.sleep(0)
    assert cancel_requests() == 0


async def test_leaving_ends_the_block_and_its_cleaning_up_may_wait_and_time_out() -> None:
    steps = []

    async def block(_: ClientWatch) -> None:
        try:
            await for_ever()
        finally:
            for step in range(3):
                await asyncio.sleep(0)
                steps.append(step)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await for_ever()
            steps.append(3)

    with pytest.raises(ClientGone):
        await served(leaving_soon(), block)
    assert steps == [0, 1, 2, 3]
    assert cancel_requests() == 0
    await asyncio.sleep(0)


async def test_cutting_is_leaving_and_happens_once() -> None:
    requests = []

    async def block(watch: ClientWatch) -> None:
        asyncio.get_running_loop().call_soon(watch.cut)
        try:
            await for_ever()
        finally:
            watch.cut()
            requests.append(cancel_requests())
            await asyncio.sleep(0)

    with pytest.raises(ClientGone):
        await served(Client(), block)
    assert requests == [1]
    assert cancel_requests() == 0


@pytest.mark.parametrize(
    ("interrupt", "ends_as"),
    [
        (lambda task, watch: watch.cut(), ("gone", 0)),
        (lambda task, watch: task.cancel(), ("cancelled", 1)),
        (lambda task, watch: (watch.cut(), task.cancel()), ("cancelled", 1)),
        (lambda task, watch: (task.cancel(), watch.cut()), ("cancelled", 1)),
    ],
)
async def test_a_cancellation_from_outside_passes_through_whatever_else_happens(
    interrupt: Callable[[asyncio.Task[Any], ClientWatch], Any], ends_as: tuple[str, int]
) -> None:
    inside: asyncio.Future[ClientWatch] = asyncio.get_running_loop().create_future()

    async def serve() -> tuple[str, int]:
        try:
            async with ClientWatch(Client()) as watch:
                inside.set_result(watch)
                await for_ever()
        except ClientGone:
            return "gone", cancel_requests()
        except asyncio.CancelledError:
            return "cancelled", cancel_requests()
        raise AssertionError("the block has no end")

    task = asyncio.create_task(serve())
    interrupt(task, await inside)
    assert await task == ends_as


async def test_a_timeout_inside_or_outside_is_a_timeout() -> None:
    async with ClientWatch(Client()):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await for_ever()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0), ClientWatch(Client()):
            await for_ever()
    assert cancel_requests() == 0


async def test_leaving_while_a_timeout_runs_inside_is_leaving() -> None:
    with pytest.raises(ClientGone):
        async with ClientWatch(leaving_soon()), asyncio.timeout(GUARD_S):
            await for_ever()
    assert cancel_requests() == 0


async def test_an_error_of_the_cleaning_up_is_told() -> None:
    async def block(_: ClientWatch) -> None:
        try:
            await for_ever()
        finally:
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await served(leaving_soon(), block)
    assert cancel_requests() == 0
    await asyncio.sleep(0)


async def test_an_error_of_the_block_passes_through() -> None:
    with pytest.raises(ValueError, match="broken"):
        async with ClientWatch(Client()):
            raise ValueError("broken")
