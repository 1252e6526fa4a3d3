"""A gateway that may open a hundred files goes on serving whoever asks, whatever others hold open."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

from tests.control.api.lone_gateway import LoneGateway
from tests.control.api.people import Client, People
from tests.waiting import GUARD_S

STRANGERS = {
    "the body of a sign-in": b"POST /console/api/session HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    "the body of a change": b"POST /admin/v1/organizations HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    "refusals at a pace": b"GET /admin/v1/me HTTP/1.1\r\nhost: x\r\n\r\n" * 10,
    "nonsense at a pace": b"GET /admin/v1/projcts/limts HTTP/1.1\r\nhost: x\r\n\r\n" * 10,
    "health at a pace": b"GET /readyz HTTP/1.1\r\nhost: x\r\n\r\n" * 10,
}


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


@pytest.mark.parametrize("sent", STRANGERS.values(), ids=STRANGERS)
async def test_a_client_with_a_key_gets_through_and_keeps_its_connection(
    sent: bytes, people: People, other_gateway: LoneGateway
) -> None:
    """Strangers come from twenty networks, and a page of the console listens meanwhile."""
    operator = await people.operator()
    async with asyncio.timeout(GUARD_S), contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        client = Client(session, other_gateway.url, operator.secret)
        news = await stack.enter_async_context(client.opened("GET", "/events?topics=fleet"))
        assert news.status == 200
        for number in range(60):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", int(other_gateway.url.rpartition(":")[2]), local_addr=(f"127.0.2.{number % 20 + 1}", 0)
            )
            stack.push_async_callback(_end, writer)
            writer.write(sent)
        for _ in range(10):
            async with aiohttp.ClientSession() as fresh:
                honest = Client(fresh, other_gateway.url, operator.secret)
                assert (await honest.ask("GET", "/me")).status == 200
        assert not news.content.at_eof()
        assert not news.closed


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
