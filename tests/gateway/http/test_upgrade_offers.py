"""A request that offers an upgrade is served as any other, and its body is never the next request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.http.client_connection import SCOPE_KEY
from tests.gateway.served import on_uvloop, served

OFFERS = {
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
    "websocket": b"connection: upgrade\r\nupgrade: websocket\r\n",
    "anything": b"upgrade: anything\r\nconnection: keep-alive, Upgrade\r\n",
}
INNER = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
GET = b"GET /next HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def repeats(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body."""
    channel, body, more = scope[SCOPE_KEY], b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        more = message["more_body"]
    said = scope["path"].encode() + b" " + body
    channel.start(200, [(b"content-length", b"%d" % len(said))])
    channel.end(said)


def with_length(offer: bytes, body: bytes) -> bytes:
    return b"POST /first HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n" % (offer, len(body))


def chunked(offer: bytes) -> bytes:
    return b"POST /first HTTP/1.1\r\nhost: x\r\n%btransfer-encoding: chunked\r\n\r\n" % offer


async def answers(server: Any, pieces: list[bytes]) -> list[bytes]:
    """The bodies of all answers on one connection, to its end. pieces: segments, each read before the next is sent."""
    reader, writer = await server.connect()
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
        for _ in range(20):  # turns of the loop that server and client share
            await asyncio.sleep(0)
    received = await reader.read()
    writer.close()
    bodies = []
    while received:
        head, _, rest = received.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), received
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        bodies.append(rest[:length])
        received = rest[length:]
    return bodies


@pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)
@pytest.mark.parametrize("body", [b"0123456789", INNER, b""], ids=["text", "a request", "nothing"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
@on_uvloop
async def test_the_body_belongs_to_its_request_however_it_is_cut(offer: bytes, body: bytes, framing: str) -> None:
    if framing == "length":
        sent = with_length(offer, body) + body + GET
    else:
        pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
        sent = chunked(offer) + pieces + b"0\r\n\r\n" + GET
    head = sent.index(b"\r\n\r\n") + 4
    cuts = {head - 1, head, head + 1, head + len(body) // 2, len(sent) - len(GET), 10} & set(range(1, len(sent)))
    async with served(repeats) as server:
        expected = [b"/first " + body, b"/next "]
        assert await answers(server, [sent]) == expected
        for cut in sorted(cuts):
            assert await answers(server, [sent[:cut], sent[cut:]]) == expected, cut


@on_uvloop
async def test_a_pipeline_of_offers_is_answered_in_order() -> None:
    sent = b"".join(with_length(OFFERS["h2c"], b"%d" % number) + b"%d" % number for number in range(9))
    async with served(repeats) as server:
        expected = [b"/first %d" % number for number in range(9)]
        assert await answers(server, [sent + GET]) == [*expected, b"/next "]


@on_uvloop
async def test_a_body_that_no_parser_can_frame_is_refused() -> None:
    head = chunked(OFFERS["h2c"]).replace(b"chunked", b"gzip")
    async with served(repeats) as server:
        reader, writer = await server.connect()
        writer.write(head + b"ab")
        assert (await reader.read()).startswith(b"HTTP/1.1 501 ")
        writer.close()


@on_uvloop
async def test_a_request_that_closes_its_connection_is_the_last_one() -> None:
    offer = OFFERS["h2c"].replace(b"Upgrade,", b"close, Upgrade,")
    async with served(repeats) as server:
        for behind in (b"", b"more"):
            assert await answers(server, [with_length(offer, b"ab") + b"ab" + behind]) == [b"/first ab"]
