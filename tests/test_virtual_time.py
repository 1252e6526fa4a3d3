"""The tests' clock: it moves by timers alone, and never past what is ready."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from tests.virtual_time import START_S, in_virtual_time, now_s


@in_virtual_time
async def test_a_year_passes_at_once() -> None:
    began_s = time.monotonic()
    await asyncio.sleep(365 * 86_400)
    assert now_s() == START_S + 365 * 86_400
    assert time.monotonic() - began_s < 60, "a guard, not a measure"


@in_virtual_time
async def test_timers_end_in_their_order_whatever_each_costs() -> None:
    ended: list[int] = []

    async def wait(number: int) -> None:
        await asyncio.sleep(number / 1_000)
        ended.append(number)
        sum(range(20_000))  # work takes no time

    async with asyncio.TaskGroup() as group:
        for number in (30, 10, 20, 11):
            group.create_task(wait(number))
    assert ended == [10, 11, 20, 30]
    assert now_s() == pytest.approx(START_S + 0.03)


@in_virtual_time
async def test_a_timeout_ends_what_would_never_end() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3_600):
            await asyncio.Event().wait()
    assert now_s() == START_S + 3_600


@in_virtual_time
async def test_no_time_passes_while_a_thread_works() -> None:
    async with asyncio.timeout(0.001):
        assert await asyncio.to_thread(sum, range(300_000)) == 44_999_850_000
    assert now_s() == START_S


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_no_time_passes_while_bytes_are_on_their_way(family: socket.AddressFamily) -> None:
    @in_virtual_time
    async def exchange() -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line)
            writer.close()

        if family == socket.AF_UNIX:
            ours, theirs = socket.socketpair()
            _, echoing = await asyncio.open_connection(sock=theirs)
            task = asyncio.create_task(echo(_, echoing))
            reader, writer = await asyncio.open_connection(sock=ours)
        else:
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        async with asyncio.timeout(0.001):
            for _ in range(200):
                writer.write(b"line\n")
                assert await reader.readline() == b"line\n"
        assert now_s() == START_S
        writer.close()
        await writer.wait_closed()
        if family == socket.AF_UNIX:
            await task
        else:
            server.close()
            await server.wait_closed()

    exchange()
