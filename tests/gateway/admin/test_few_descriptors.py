"""A gateway that may open a hundred files goes on serving whoever asks, whatever others hold open."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp

from tests.gateway.admin.lone_gateway import LoneGateway
from tests.waiting import GUARD_S


async def test_idle_and_half_sent_connections_do_not_lock_an_honest_client_out(other_gateway: LoneGateway) -> None:
    """A hundred descriptors, a hundred and ten connections that say nothing, or half a request."""
    async with asyncio.timeout(GUARD_S), contextlib.AsyncExitStack() as stack:
        for number in range(110):
            _, writer = await asyncio.open_connection("127.0.0.1", int(other_gateway.url.rpartition(":")[2]))
            stack.push_async_callback(_end, writer)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\n" if number % 2 else b"")
        for _ in range(20):
            async with aiohttp.ClientSession() as session, session.get(f"{other_gateway.url}/v1/models") as response:
                assert response.status == 401


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
