"""A channel writes HTTP as clients of every kind read it, and tells when the client has left or does not keep up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from tests.gateway.served import served

Serve = Callable[[ClientConnection], Awaitable[None]]
REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    """The port of a real server that answers every request by `serve`."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await serve(scope[SCOPE_KEY])

    async with served(app) as server:
        yield server.port


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def test_a_stream_is_chunked_and_its_connection_is_used_again() -> None:
    async def serve(channel: ClientConnection) -> None:
        channel.start(200, [(b"content-type", b"text/plain")])
        for piece in (b"", b"one,", b"two,"):
            channel.write(piece)
            await asyncio.sleep(0)
        channel.end(b"three")

    async with serving(serve) as port, aiohttp.ClientSession() as session:
        ports = set()
        for _ in range(3):
            async with session.post(f"http://127.0.0.1:{port}/") as response:
                assert response.connection is not None
                assert response.connection.transport is not None
                ports.add(response.connection.transport.get_extra_info("sockname")[1])
                assert response.headers["transfer-encoding"] == "chunked"
                assert await response.text() == "one,two,three"
        assert len(ports) == 1


async def test_a_whole_answer_has_its_length() -> None:
    async def serve(channel: ClientConnection) -> None:
        channel.start(418, [(b"content-length", b"5")])
        channel.end(b"short")

    async with (
        serving(serve) as port,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/") as r,
    ):
        assert (r.status, r.headers["content-length"], await r.text()) == (418, "5", "short")
        assert "transfer-encoding" not in r.headers


async def test_an_old_client_gets_bytes_until_the_end_of_the_connection() -> None:
    async def serve(channel: ClientConnection) -> None:
        channel.start(200, [])
        channel.write(b"one,")
        channel.end(b"two")

    async with serving(serve) as port:
        reader, writer = await connected(port)
        writer.write(b"POST / HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert body == b"one,two"
        assert b"chunked" not in head
        assert b"connection: close" in head
        writer.close()


@pytest.mark.parametrize("pipelined", [0, 1])
async def test_leaving_is_told_once_even_behind_it_waits_another_request(pipelined: int) -> None:
    gone: asyncio.Queue[ClientConnection] = asyncio.Queue()
    begun = asyncio.Event()

    async def serve(channel: ClientConnection) -> None:
        channel.on_gone = lambda: gone.put_nowait(channel)
        channel.start(200, [])
        channel.write(b"begun")
        begun.set()
        await asyncio.Event().wait()

    async with serving(serve) as port:
        _, writer = await connected(port)
        writer.write(REQUEST * (1 + pipelined))
        await begun.wait()
        writer.transport.abort()
        channel = await gone.get()
        assert channel.gone
        channel.write(b"into the void")
        channel.lost()
        assert gone.empty()


async def test_an_answer_that_has_ended_cannot_be_left() -> None:
    calls: list[str] = []
    channels: list[ClientConnection] = []

    async def serve(channel: ClientConnection) -> None:
        channel.on_gone = lambda: calls.append("gone")
        channel.start(200, [(b"content-length", b"0")])
        channel.end(b"")
        channels.append(channel)

    async with serving(serve) as port:
        reader, writer = await connected(port)
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert channels[0].ended
    assert calls == []


async def test_a_client_that_does_not_read_fills_the_channel_and_empties_it_by_reading() -> None:
    states: list[bool] = []
    full = asyncio.Event()

    async def serve(channel: ClientConnection) -> None:
        channel.start(200, [])
        while not channel.full:
            channel.write(b"x" * 65_536)
            await asyncio.sleep(0)
        full.set()
        await channel.drained()
        states.append(channel.full)
        channel.end(b"")

    async with serving(serve) as port:
        reader, writer = await connected(port)
        writer.write(REQUEST)
        await full.wait()
        assert states == []
        await _until_end(reader)
        assert states == [False]
        writer.close()


async def _until_end(reader: asyncio.StreamReader) -> None:
    tail = b""
    while not tail.endswith(b"0\r\n\r\n"):
        tail = (tail + await reader.read(1 << 20))[-16:]


async def test_a_header_cannot_smuggle_another() -> None:
    refused: list[str] = []

    async def serve(channel: ClientConnection) -> None:
        try:
            channel.start(200, [(b"x-request-id", b"a\r\nset-cookie: b")])
        except ValueError as error:
            refused.append(str(error))
        channel.start(200, [(b"content-length", b"0")])
        channel.end(b"")

    async with (
        serving(serve) as port,
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/") as r,
    ):
        assert "set-cookie" not in r.headers
    assert len(refused) == 1


async def test_head_is_answered_without_a_body_and_a_stream_hears_that_nobody_reads() -> None:
    left = asyncio.Event()

    async def serve(channel: ClientConnection) -> None:
        channel.on_gone = left.set
        channel.start(200, [(b"content-type", b"text/plain")])
        channel.write(b"one,")
        assert channel.gone
        channel.write(b"two,")
        channel.end(b"three")

    async with serving(serve) as port:
        reader, writer = await connected(port)
        for _ in range(2):
            writer.write(REQUEST.replace(b"POST", b"HEAD"))
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            await left.wait()
            left.clear()
        writer.write(REQUEST.replace(b"POST", b"HEAD").replace(b"host", b"connection: close\r\nhost"))
        assert (await reader.read()).endswith(b"\r\n\r\n")
        writer.close()
