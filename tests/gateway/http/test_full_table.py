"""Clients without a key from twenty networks hold every connection in every state; one with a key gets through."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gateway.http.client_connection import SCOPE_KEY
from gateway.http.connections import Waiting
from tests.gateway.http.test_client_protocol import GET, POST, answer, one_answer, reads_its_body, refused
from tests.gateway.served import Served, on_uvloop, served
from tests.waiting import eventually

NETWORKS, EACH = 20, 3
MAX = NETWORKS * EACH
LARGE = b"x" * 6_000_000
"""More than the buffers of both sockets take."""
HONEST = POST.replace(b"POST /", b"POST /honest") + b"0123456789"
ENTER: dict[Waiting | None, bytes] = {
    Waiting.HEAD: GET[:-2] + b"a: ",
    Waiting.BODY: POST.replace(b"POST /", b"POST /body") + b"0",
    Waiting.UNREAD: POST.replace(b"POST /", b"POST /unread") + b"0",
    Waiting.READING: GET.replace(b"GET /", b"GET /reading"),
    Waiting.IDLE: GET.replace(b"GET /", b"GET /idle"),
    Waiting.CLOSING: b"GET /closing HTTP/1.0\r\n\r\n",
    None: GET.replace(b"GET /", b"GET /waits"),
}
"""Bytes that bring a stranger's connection into this state."""


class App:
    """Does by the path what keeps a stranger's connection in one state. An honest request is served until `go_on`."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.honest = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        connection = scope[SCOPE_KEY]
        match scope["path"]:
            case "/honest":
                connection.serve("an organization")
                connection.reserved()
                self.honest += 1
                await self.go_on.wait()
                await reads_its_body(scope, receive, send)
            case "/body":
                await reads_its_body(scope, receive, send)
            case "/reading":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(10):
                    await send({"type": "http.response.body", "body": LARGE, "more_body": True})
            case "/waits":
                await asyncio.Event().wait()
            case "/closing":
                answer(connection, LARGE)
            case _:
                answer(connection, b"", 401)


async def comes_from(server: Served, network: int, sent: bytes) -> socket.socket:
    """A client of its own network that has sent this, and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    client.bind((f"127.0.1.{network + 1}", 0))
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    await loop.sock_sendall(client, sent)
    return client


@pytest.mark.parametrize("state", ENTER)
@on_uvloop
async def test_one_honest_request_gets_through_a_full_table(state: Waiting | None) -> None:
    app = App()
    async with served(app, max_connections=MAX) as server:
        held = [await comes_from(server, number % NETWORKS, ENTER[state]) for number in range(MAX)]
        await server.waits_for(*[state] * MAX)
        server.passes(2)
        peer = await server.connect(HONEST)
        await eventually(lambda: app.honest == 1)
        assert server.ended["gave_way_limit"] == 1
        held += [await comes_from(server, number % NETWORKS, ENTER[state]) for number in range(MAX)]
        await server.has_ended("gave_way_limit", MAX + 1)
        app.go_on.set()
        assert await one_answer(peer) == (200, b"10"), "strangers that come later do not push it out"
        assert server.ended == {"gave_way_limit": MAX + 1}
        for each in held:
            each.close()


@pytest.mark.parametrize("state", [Waiting.HEAD, Waiting.BODY, None, Waiting.IDLE])
@on_uvloop
async def test_a_client_that_gives_way_before_its_answer_gets_the_reason(state: Waiting | None) -> None:
    async with served(App(), max_connections=1) as server:
        given_way = await server.connect(ENTER[state])
        if state is Waiting.IDLE:
            assert await one_answer(given_way) == (401, b"")
        await server.waits_for(state)
        assert await one_answer(await server.connect(GET)) == (401, b"")
        received = await given_way[0].read()
        if state is Waiting.IDLE:
            assert received == b"", "it has had its answer"
        else:
            assert refused(received) == (503, "connections_exhausted")
            assert b"retry-after: 1" in received


@on_uvloop
async def test_a_strangers_request_ends_when_its_connection_gives_way() -> None:
    left = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        scope[SCOPE_KEY].on_gone = left.set
        while (await receive())["type"] != "http.disconnect":
            pass

    async with served(waits, max_connections=1) as server:
        await server.connect(POST + b"0")
        await server.waits_for(Waiting.BODY)
        await server.connect()
        await left.wait()
        await server.has_ended("gave_way_limit")
