"""What a client's connection may hold, on real sockets: slow heads, slow bodies, large headers, many connections."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import Any

import msgspec
import pytest

from gateway.http.certificate import Certificate
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.client_protocol import MAX_PIPELINED, ClientProtocol
from gateway.http.connections import Waiting
from tests.gateway.served import App, Served, on_uvloop, served
from tests.waiting import eventually

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET / HTTP/1.0\r\n\r\n"
"""Its connection closes after the answer."""
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n"
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def reads_its_body(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of bytes that came; through the channel, as inference does."""
    channel, size, more = scope[SCOPE_KEY], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        more = message["more_body"]
    answer(channel, b"%d" % size)


async def wants_no_body(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once; through ASGI, as the routes do."""
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b"no"})


async def wants_no_body_either(scope: Any, receive: Any, send: Any) -> None:
    answer(scope[SCOPE_KEY], b"no", 401)


def answer(channel: Any, body: bytes, status: int = 200) -> None:
    channel.start(status, [(b"content-length", b"%d" % len(body))])
    channel.end(body)


async def all_of(peer: Peer) -> bytes:
    """What comes until the connection ends, however it ends."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := await peer[0].read(65_536):
            received += piece
    peer[1].close()
    return received


async def one_answer(peer: Peer) -> tuple[int, bytes]:
    """Status and body of one answer with a length; the connection stays."""
    head = await peer[0].readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return int(head.split()[1]), await peer[0].readexactly(int(length.split(b":")[1]))


def refused(received: bytes) -> tuple[int, str]:
    """Status and code of an answer in OpenAI's shape."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"x-request-id: req_" in head
    return int(head.split()[1]), msgspec.json.decode(body)["error"]["code"]


async def sent(server: Served, peer: Peer, data: bytes) -> None:
    """Send this, and return once the server has read it."""
    before = server.received
    peer[1].write(data)
    await server.has_received(before + len(data))


async def dripped(server: Served, peer: Peer, piece: bytes, *, seconds: int) -> None:
    """A little each second, so that a limit on silence would never notice. The connection must outlive it."""
    for _ in range(seconds):
        await sent(server, peer, piece)
        server.passes(1)
    assert server.ended == {}


@pytest.mark.parametrize(
    ("request_before", "begun", "piece", "waiting"),
    [
        (b"", b"", b"", Waiting.HEAD),
        (b"", GET[:-2] + b"a: ", b"x", Waiting.HEAD),
        (GET, GET[:-2] + b"a: ", b"x", Waiting.HEAD),
        (b"", POST.replace(b"10", b"10000"), b"x", Waiting.BODY),
        (GET, b"", b"\r\n", Waiting.IDLE),  # empty lines are allowed between requests, and are no request
    ],
    ids=["nothing", "a head", "a second head", "a body", "no second request"],
)
@on_uvloop
async def test_what_never_ends_is_over_in_time_however_steadily_it_comes(
    request_before: bytes, begun: bytes, piece: bytes, waiting: Waiting
) -> None:
    limits: dict[str, Any] = {f"{waiting.value}_timeout_s": 10}
    async with served(reads_its_body, **limits) as server:
        peer = await server.connect(request_before)
        if request_before:
            assert await one_answer(peer) == (200, b"0")
        if begun:
            await sent(server, peer, begun)
        await server.waits_for(waiting)
        await dripped(server, peer, piece, seconds=9)
        server.passes(1)
        received = await all_of(peer)
        assert (refused(received) if begun else received) == ((408, "request_timeout") if begun else b"")
        assert server.ended == {f"{waiting.value}_timeout": 1}
        await server.holds(0)


@on_uvloop
async def test_a_long_body_has_its_time_for_each_part() -> None:
    async def in_parts(scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message["body"]), message["more_body"]
            scope[SCOPE_KEY].receiving()
        scope[SCOPE_KEY].start(200, [(b"content-length", b"2")])
        scope[SCOPE_KEY].end(b"%d" % size)

    async with served(in_parts, body_timeout_s=10) as server:
        peer = await server.connect()
        await sent(server, peer, POST)
        for part in (b"0123", b"4567", b"89"):
            await server.waits_for(Waiting.BODY)
            server.passes(9)
            await sent(server, peer, part)
        assert await one_answer(peer) == (200, b"10")
        assert server.ended == {}


@on_uvloop
async def test_a_request_that_is_served_has_all_the_time_it_needs() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await reads_its_body(scope, receive, send)

    limits: dict[str, Any] = {f"{name}_timeout_s": 10 for name in ("head", "body", "idle", "unread")}
    async with served(slow, **limits) as server:
        peer = await server.connect()
        await sent(server, peer, POST + b"0123456789")
        await server.waits_for(None)
        server.passes(3_600)
        go_on.set()
        assert await one_answer(peer) == (200, b"10")
        assert server.ended == {}


@pytest.mark.parametrize("app", [wants_no_body, wants_no_body_either])
@on_uvloop
async def test_an_early_answer_comes_at_once_and_the_body_has_a_little_time(app: App) -> None:
    async with served(app, unread_timeout_s=5, body_timeout_s=3_600) as server:
        honest = await server.connect(POST)
        assert await one_answer(honest) == (401, b"no")
        honest[1].write(b"0123456789" + POST + b"0123456789")
        assert await one_answer(honest) == (401, b"no"), "the body was thrown away and the connection goes on"
        silent = await server.connect(POST)
        assert await one_answer(silent) == (401, b"no")
        await server.waits_for(Waiting.IDLE, Waiting.UNREAD)
        server.passes(4)
        assert server.ended == {}
        server.passes(1)
        assert await all_of(silent) == b""
        assert server.ended == {"unread_timeout": 1}


@pytest.mark.parametrize("app", [wants_no_body, wants_no_body_either])
@on_uvloop
async def test_who_asks_before_sending_a_body_is_refused_and_closed_without_it(app: App) -> None:
    """Else the client's next request could be read as the body that it never sent."""
    async with served(app) as server:
        received = await all_of(await server.connect(POST[:-2] + b"expect: 100-continue\r\n\r\n"))
        assert received.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in received


@on_uvloop
async def test_who_asks_before_sending_a_body_is_told_to_go_on() -> None:
    async with served(reads_its_body) as server:
        peer = await server.connect(POST[:-2] + b"expect: 100-continue\r\n\r\n")
        assert await peer[0].readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer[1].write(b"0123456789")
        assert await one_answer(peer) == (200, b"10")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n" + b"a: %s\r\n" % (b"x" * 40_000_000) + b"\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5_000_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2_100 + b"\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
        + b"a: %s\r\n" % (b"x" * 40_000_000),
    ],
    ids=["one long", "many", "many short", "url", "trailers"],
)
@on_uvloop
async def test_headers_are_bounded(head: bytes) -> None:
    async with served(reads_its_body) as server:
        reader, writer = await server.connect()

        async def send() -> None:
            with contextlib.suppress(ConnectionError):
                for start in range(0, len(head), 65_536):
                    writer.write(head[start : start + 65_536])
                    await writer.drain()

        sending = asyncio.create_task(send())
        # what had been sent after the answer may reset the connection before the client has read it
        received = await all_of((reader, writer))
        await sending
        assert not received or refused(received) == (431, "request_headers_too_large")
        await server.holds(0)


@on_uvloop
async def test_large_headers_below_the_bound_are_taken() -> None:
    async with served(reads_its_body) as server:
        head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n" + b"a: %s\r\n" % (b"x" * 60_000) + b"\r\n"
        peer = await server.connect(head + b"0123456789")
        assert await one_answer(peer) == (200, b"10")
        chunks = b"".join(b"1;extension=%s\r\na\r\n" % (b"x" * 1_000) for _ in range(200))
        peer[1].write(
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\na: b\r\n\r\n"
        )
        assert await one_answer(peer) == (200, b"200")


@on_uvloop
async def test_trailers_do_not_become_headers() -> None:
    async def tells_headers(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        answer(scope[SCOPE_KEY], b",".join(name for name, _ in scope["headers"]))

    async with served(tells_headers) as server:
        peer = await server.connect(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        peer[1].write(b"1\r\na\r\n0\r\nauthorization: Bearer x\r\n\r\n")
        assert await one_answer(peer) == (200, b"host,transfer-encoding")


@on_uvloop
async def test_few_requests_may_wait_behind_the_one_that_is_served() -> None:
    async with served(reads_its_body) as server:
        peer = await server.connect(GET * MAX_PIPELINED)
        for _ in range(MAX_PIPELINED):
            assert await one_answer(peer) == (200, b"0")
        peer[1].close()
        for count in (40, 10_000):
            peer = await server.connect(GET * count)
            for _ in range(MAX_PIPELINED + 1):
                assert await one_answer(peer) == (200, b"0")
            assert refused(await all_of(peer)) == (400, "invalid_request")
        await server.holds(0)


@on_uvloop
async def test_what_comes_behind_a_served_request_cannot_be_late_or_answered_before_it() -> None:
    """The second request waits, head and half a body sent, for as long as the first is served; then nonsense comes."""
    go_on = asyncio.Event()

    async def first_waits(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            await go_on.wait()
        await reads_its_body(scope, receive, send)

    async with served(first_waits, head_timeout_s=10, body_timeout_s=20) as server:
        peer = await server.connect()
        await sent(server, peer, GET + POST + b"01234")
        server.passes(3_600)
        assert server.ended == {}
        go_on.set()
        assert await one_answer(peer) == (200, b"0")
        await server.waits_for(Waiting.BODY)
        server.passes(20)
        assert refused(await all_of(peer)) == (408, "request_timeout"), "from now on it can"
        go_on.clear()
        peer = await server.connect()
        await sent(server, peer, GET + b"nonsense\r\n\r\n")
        server.passes(3_600)
        assert server.ended == {"body_timeout": 1}, "the first is served"
        go_on.set()
        assert await one_answer(peer) == (200, b"0")
        assert refused(await all_of(peer)) == (400, "invalid_request")


BROKEN = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\nz\r\n"


@on_uvloop
async def test_a_body_that_breaks_off_is_refused_once_what_comes_before_it_is_answered() -> None:
    go_on, paths = asyncio.Event(), []

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        paths.append(scope["method"])
        await go_on.wait()
        await reads_its_body(scope, receive, send)

    async with served(waits) as server:
        peer = await server.connect()
        await sent(server, peer, GET + BROKEN + GET)
        go_on.set()
        assert await one_answer(peer) == (200, b"0")
        assert refused(await all_of(peer)) == (400, "invalid_request")
        assert paths == ["GET"], "it is never begun, nor is what comes behind it"
        await server.holds(0)


@on_uvloop
async def test_who_reads_a_body_that_breaks_off_hears_that_it_is_over() -> None:
    over = asyncio.Event()

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        over.set()
        assert scope[SCOPE_KEY].gone
        answer(scope[SCOPE_KEY], b"too late")

    async with served(reads) as server:
        assert refused(await all_of(await server.connect(BROKEN))) == (400, "invalid_request")
        await over.wait()
        await server.holds(0)


@on_uvloop
async def test_a_body_that_breaks_off_behind_its_answer_has_no_second_one() -> None:
    for app in (wants_no_body, wants_no_body_either):
        async with served(app) as server:
            peer = await server.connect(BROKEN[:-3])
            assert await one_answer(peer) == (401, b"no")
            peer[1].write(b"z\r\n")
            assert await all_of(peer) == b""
            await server.holds(0)


def test_malformed_requests_are_counted_and_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    @on_uvloop
    async def send_malformed_requests() -> None:
        async with served(reads_its_body, max_header_bytes=1_024) as server:
            for _ in range(50):
                assert refused(await all_of(await server.connect(b"nonsense\r\n\r\n"))) == (400, "invalid_request")
            for line in (b"GET http://a HTTP/1.1", b"CONNECT a:80 HTTP/1.1", b"GET http://[/ HTTP/1.1"):
                assert refused(await all_of(await server.connect(line + b"\r\nhost: x\r\n\r\n"))) == (
                    400,
                    "invalid_request",
                )
            large = GET[:-2] + b"a: %b\r\n\r\n" % (b"x" * 1_000)
            assert refused(await all_of(await server.connect(large))) == (431, "request_headers_too_large")
            upgrade = GET[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
            for _ in range(50):
                peer = await server.connect(upgrade)
                assert await one_answer(peer) == (200, b"0")
                peer[1].close()
            assert server.malformed == {"invalid_request": 53, "request_headers_too_large": 1}

    send_malformed_requests()
    lines = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert len([record for record in lines if "malformed" in record.message]) <= 2, "one at first, one a minute later"
    assert not [record for record in lines if "equest" in record.message and "malformed" not in record.message]


def only_connection(server: Served) -> ClientProtocol:
    (connection,) = server.table._held
    assert isinstance(connection, ClientProtocol)
    return connection


async def begun(server: Served, request_head: bytes, waiting: Waiting) -> Peer:
    """A client that has read the head of its answer, whose rest waits."""
    reader, writer = await server.connect(request_head)
    await server.waits_for(waiting)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def has_less_unread_than(connection: ClientProtocol, before_bytes: int) -> bool:
    return not before_bytes or connection._unread() < before_bytes


@pytest.mark.parametrize("request_head", [GET, LAST])
@on_uvloop
async def test_a_client_that_does_not_read_its_last_answer_is_cut(request_head: bytes) -> None:
    async with served(large_at_once, idle_timeout_s=10, unread_timeout_s=10) as server:
        _, writer = await server.connect(request_head)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        if request_head is GET:
            await server.waits_for(Waiting.IDLE)
            server.passes(10)
        await server.waits_for(Waiting.CLOSING)
        server.passes(9)
        assert server.ended["closing_timeout"] == 0
        server.passes(1)
        assert server.ended["closing_timeout"] == 1
        await server.holds(0)


@on_uvloop
async def test_what_a_client_keeps_in_its_buffers_alone_gets_it_no_second_wait() -> None:
    async with served(large_at_once, unread_timeout_s=10) as server:
        _, writer = await server.connect(LAST, receive_buffer=50_000)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await server.waits_for(Waiting.CLOSING)
        connection = only_connection(server)
        writer.transport.resume_reading()  # type: ignore[attr-defined]  # into the buffer of a reader that nobody asks
        await eventually(functools.partial(has_less_unread_than, connection, connection._unread_bytes))
        server.passes(10)
        assert server.ended == {"closing_timeout": 1}


async def large_at_once(scope: Any, receive: Any, send: Any) -> None:
    answer(scope[SCOPE_KEY], b"x" * 20_000_000)


async def large_in_asgi(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"20000000")]})
    await send({"type": "http.response.body", "body": b"x" * 20_000_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize(
    ("app", "request_head", "waiting"),
    [
        (large_at_once, LAST, Waiting.CLOSING),
        (large_at_once, GET, Waiting.IDLE),
        (large_in_asgi, GET, Waiting.READING),
    ],
    ids=["connection closes", "connection stays", "through ASGI"],
)
@on_uvloop
async def test_a_client_that_reads_on_gets_all_of_a_large_answer(
    app: App, request_head: bytes, waiting: Waiting
) -> None:
    async with served(app, unread_timeout_s=10, body_timeout_s=10, idle_timeout_s=10) as server:
        reader, writer = await begun(server, request_head, waiting)
        for _ in range(4):
            await reader.readexactly(4_000_000)
            server.passes(10)
        await reader.readexactly(4_000_000)
        writer.transport.abort()


@on_uvloop
async def test_a_client_that_reads_less_than_the_kernel_holds_in_each_wait_gets_all_of_its_answer() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        answer(scope[SCOPE_KEY], b"x" * 8_000_000)

    async with served(large, unread_timeout_s=10) as server:
        reader, _ = await begun(server, LAST, Waiting.CLOSING)
        connection = only_connection(server)
        for read_bytes in (1_500_000, 500_000) * 4:  # the kernel's window opens in steps just as uneven
            before_bytes = connection._unread()
            await reader.readexactly(read_bytes)
            # the reader may have had them already; its loop then reads on in the next turn, long before a wait's end
            await eventually(functools.partial(has_less_unread_than, connection, before_bytes))
            server.passes(10)
        assert await reader.read() == b""


@on_uvloop
async def test_a_client_that_reads_ever_so_little_is_cut() -> None:
    async with served(large_at_once, unread_timeout_s=10) as server:
        reader, writer = await begun(server, LAST, Waiting.CLOSING)
        waits = 0
        while not server.ended["closing_timeout"]:
            await reader.readexactly(400_000)
            server.passes(10)
            waits += 1
        assert waits <= 11, "a wait for each tenth, and one more"
        writer.transport.abort()


@on_uvloop
async def test_an_answer_may_end_in_the_turn_in_which_its_connection_is_lost() -> None:
    await ends_as_it_is_lost()


async def ends_as_it_is_lost(certificate: Certificate | None = None, **more: Any) -> None:
    """The last chunk and the loss of the client that did not read it all come in one turn of the loop."""
    ended = asyncio.get_running_loop().create_future()

    async def ends(scope: Any, receive: Any, send: Any) -> None:
        channel: ClientConnection = scope[SCOPE_KEY]
        channel.start(200, [])
        while not channel.full:
            channel.write(b"x" * 65_536)
            await asyncio.sleep(0)
        connection = only_connection(server)
        socket_transport = connection._below or connection._raw
        assert socket_transport is not None
        socket_transport.abort()

        def end() -> None:
            try:
                channel.end(b"")
            except Exception as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        asyncio.get_running_loop().call_soon(end)
        await asyncio.wait([ended])  # uvicorn would discard the end of an application that has returned

    async with served(ends, certificate) as server:
        _, writer = await server.connect(GET, **more)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await ended
        await server.holds(0)


@on_uvloop
async def test_no_further_request_is_read_while_an_answer_is_unread() -> None:
    served_requests = 0

    async def large(scope: Any, receive: Any, send: Any) -> None:
        nonlocal served_requests
        served_requests += 1
        answer(scope[SCOPE_KEY], b"x" * 20_000_000)

    async with served(large, idle_timeout_s=10, unread_timeout_s=10) as server:
        reader, writer = await server.connect(GET)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await server.waits_for(Waiting.IDLE)
        for _ in range(20):
            writer.write(GET)
            for _ in range(5):
                await asyncio.sleep(0)  # turns of the loop, in which the server may read
        assert served_requests == 1
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(3):
            assert len((await one_answer((reader, writer)))[1]) == 20_000_000
        assert 3 <= served_requests <= 5, "one after the other, as they are read"
        writer.transport.abort()


async def writes_without_end(scope: Any, receive: Any, send: Any) -> None:
    """Through ASGI, as the routes do: waits while the client does not read."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(40):
        await send({"type": "http.response.body", "body": b"x" * 1_000_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@on_uvloop
async def test_a_client_that_reads_nothing_of_an_answer_is_cut() -> None:
    async with served(writes_without_end, body_timeout_s=10) as server:
        _, writer = await server.connect(GET)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await server.waits_for(Waiting.READING)
        server.passes(9)
        assert server.ended == {}
        server.passes(1)
        assert server.ended == {"reading_timeout": 1}
        await server.holds(0)


@on_uvloop
async def test_a_client_that_keeps_reading_has_its_answer() -> None:
    async with served(writes_without_end, body_timeout_s=10) as server:
        peer = await server.connect(GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        received = 0
        while piece := await peer[0].read(1_000_000):
            received += len(piece)
            # 40 s in all; what lies in the buffers of the sockets, a few megabytes, takes less than 10
            server.passes(len(piece) / 1_000_000)
        assert received > 40_000_000
        assert not server.ended


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_connections": 2}, (503, "connections_exhausted")),
        ({"max_connections_per_address": 2}, (429, "too_many_connections")),
    ],
)
@on_uvloop
async def test_who_is_served_does_not_give_way(limits: dict[str, Any], told: tuple[int, str]) -> None:
    go_on = asyncio.Event()

    begun = asyncio.Semaphore(0)

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        scope[SCOPE_KEY].serve("an organization")
        scope[SCOPE_KEY].reserved()
        begun.release()
        await go_on.wait()
        await reads_its_body(scope, receive, send)

    async with served(waits, **limits) as server:
        busy = [await server.connect(GET) for _ in range(2)]
        for _ in busy:
            await begun.acquire()
        received = await all_of(await server.connect(POST + b"0123456789"))
        assert refused(received) == told, "what it sent is read, or the answer would be lost"
        assert b"retry-after: 1" in received
        go_on.set()
        for peer in busy:
            assert await one_answer(peer) == (200, b"0")
        new = await server.connect(GET)
        assert await one_answer(new) == (200, b"0")


@pytest.mark.parametrize("header", [b"connection: close", b"expect: 100-continue"])
@pytest.mark.parametrize("app", [wants_no_body, wants_no_body_either])
@on_uvloop
async def test_an_early_answer_that_closes_its_connection_reaches_a_client_that_still_sends(
    app: App, header: bytes
) -> None:
    async with served(app) as server:
        head = b"POST / HTTP/1.1\r\nhost: x\r\n%b\r\ncontent-length: 3000000\r\n\r\n" % header
        peer = await server.connect(head + b"a" * 1_000_000)
        await peer[1].drain()
        for _ in range(20):
            peer[1].write(b"a" * 100_000)
            await peer[1].drain()
        assert await one_answer(peer) == (401, b"no")
        assert await peer[0].read() == b""


@on_uvloop
async def test_a_later_request_that_expects_100_closes_no_connection_before_its_answer() -> None:
    async with served(wants_no_body) as server:
        peer = await server.connect(GET + GET + POST[:-2] + b"expect: 100-continue\r\n\r\n")
        assert [await one_answer(peer) for _ in range(3)] == [(401, b"no")] * 3


@pytest.mark.parametrize("header", [b"connection: close", b"connection: keep-alive"])
@on_uvloop
async def test_a_gateway_that_stops_lets_a_client_that_still_sends_read_its_answer(header: bytes) -> None:
    async with served(wants_no_body_either) as server:
        head = b"POST / HTTP/1.1\r\nhost: x\r\n%b\r\ncontent-length: 3000000\r\n\r\n" % header
        peer = await server.connect()
        await sent(server, peer, head + b"a" * 10_000)
        await server.waits_for(Waiting.CLOSING if b"close" in header else Waiting.UNREAD)
        for each in server.server.server_state.connections:
            each.shutdown()
        for _ in range(20):
            peer[1].write(b"a" * 100_000)
            await peer[1].drain()
        assert await one_answer(peer) == (401, b"no")
        assert await peer[0].read() == b""
