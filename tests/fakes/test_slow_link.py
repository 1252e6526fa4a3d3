"""The link closes every connection it opened, in whichever step of a relay's end it is cut."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.slow_link import Streams, connect, slow_link
from tests.waiting import GUARD_S


@pytest.mark.parametrize("steps", range(12))
async def test_a_cut_closes_what_a_client_that_leaves_had_open(steps: int) -> None:
    arrived: asyncio.Queue[Streams] = asyncio.Queue()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await arrived.put((reader, writer))

    target = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with target, slow_link(("127.0.0.1", target.sockets[0].getsockname()[1])) as (link, port):
        _, client = await connect(("127.0.0.1", port))
        reader, writer = await arrived.get()
        client.transport.abort()
        for _ in range(steps):
            await asyncio.sleep(0)
        await link.close()
        try:
            async with asyncio.timeout(GUARD_S):
                assert await reader.read() == b""
        finally:
            writer.transport.abort()
