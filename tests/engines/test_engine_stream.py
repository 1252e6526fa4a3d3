"""A response of an engine: split anywhere, cut anywhere, slowed down, given up."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import EngineFailed
from engines.http.connection_pool import HEADER_BYTES, Connection, ConnectionPool
from engines.http.engine_stream import BUFFER_BYTES, EngineStream
from engines.http.origin import Origin
from tests.engines.responses import CHUNKED, CONTINUED, EVENTS, SIZED, UNTIL_CLOSE, read_all
from tests.waiting import GUARD_S


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = False
        self.paused = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def exchange() -> tuple[Connection, FakeTransport, EngineStream]:
    connection, transport = Connection(ConnectionPool(Origin.parse("http://engine:1"))), FakeTransport()
    connection.connection_made(transport)
    return connection, transport, connection.send(b"")


async def outcome(pieces: list[bytes], *, lost: bool) -> tuple[int, bytes, bool]:
    """Status, body, and whether the end was clean, when these pieces arrive."""
    connection, _, stream = exchange()
    for piece in pieces:
        connection.data_received(piece)
    if lost:
        connection.connection_lost(None)
    body = b""
    try:
        while piece := await asyncio.wait_for(stream.read(), GUARD_S):
            body += piece
    except EngineFailed:
        return stream.status, body, False
    return stream.status, body, True


@pytest.mark.parametrize("answer", [CHUNKED, SIZED, CONTINUED, UNTIL_CLOSE])
async def test_an_answer_split_at_every_byte_reads_the_same(answer: bytes) -> None:
    for cut in range(len(answer) + 1):
        lost = answer is UNTIL_CLOSE
        assert await outcome([answer[:cut], answer[cut:]], lost=lost) == (200, EVENTS, True)
    assert await outcome([answer[i : i + 1] for i in range(len(answer))], lost=lost) == (200, EVENTS, True)


@pytest.mark.parametrize("answer", [CHUNKED, SIZED, CONTINUED])
async def test_an_answer_cut_at_any_byte_fails_after_what_came(answer: bytes) -> None:
    for cut in range(len(answer)):
        _, body, clean = await outcome([answer[:cut]], lost=True)
        assert not clean
        assert EVENTS.startswith(body)


@given(cuts=st.lists(st.integers(0, len(CHUNKED)), max_size=6), leftover=st.binary(max_size=30))
async def test_bytes_beyond_the_answer_spoil_the_connection_and_not_the_answer(
    cuts: list[int], leftover: bytes
) -> None:
    connection, transport, stream = exchange()
    whole = CHUNKED + leftover
    edges = [0, *sorted(cuts), len(whole)]
    for start, end in itertools.pairwise(edges):
        if end > start:
            connection.data_received(whole[start:end])
    assert await read_all(stream) == EVENTS
    if leftover.strip(b"\r\n"):
        assert transport.closed


async def test_read_returns_everything_that_came_since_the_last_read() -> None:
    connection, _, stream = exchange()
    for piece in (CHUNKED[:70], CHUNKED[70:75], CHUNKED[75:]):
        connection.data_received(piece)
    assert await stream.read() == EVENTS
    assert await stream.read() == b""
    assert await stream.read() == b"", "the end stays the end"


async def test_an_engine_that_is_faster_than_its_reader_is_paused() -> None:
    connection, transport, stream = exchange()
    body = b"x" * (BUFFER_BYTES + 1)
    connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (2 * len(body)) + body)
    assert transport.paused
    assert await stream.read() == body
    assert not transport.paused
    connection.data_received(body)
    assert not transport.paused, "a complete answer leaves the connection readable for the next one"
    assert await read_all(stream) == body


async def test_what_is_not_http_fails() -> None:
    connection, transport, stream = exchange()
    connection.data_received(b"SSH-2.0-OpenSSH\r\n")
    with pytest.raises(EngineFailed, match="The engine failed: its response is not valid HTTP"):
        await stream.read()
    assert transport.closed


async def test_endless_headers_fail() -> None:
    connection, transport, stream = exchange()
    connection.data_received(b"HTTP/1.1 200 OK\r\n")
    for _ in range(70):
        connection.data_received(b"x: " + b"y" * 1_000 + b"\r\n")
    with pytest.raises(EngineFailed, match="headers are too large"):
        await stream.read()
    assert transport.closed


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("began", [b"", b"1\r\nx\r\n"], ids=["at once", "behind a chunk"])
@pytest.mark.parametrize(
    ("opening", "piece"),
    [
        (b"0\r\nX-T: ", b"a" * 1_000),
        (b"0\r\nX-", b"a" * 1_000),
        (b"0\r\n", b"x: " + b"y" * 1_000 + b"\r\n"),
        (b"5;ext=", b"a" * 1_000),
        (b"", b"0" * 1_000),
    ],
    ids=["trailer", "trailer's name", "trailers", "chunk extension", "chunk size"],
)
async def test_what_is_no_body_has_an_end(began: bytes, opening: bytes, piece: bytes) -> None:
    """A trailer without one took the whole gateway's time."""
    connection, transport, stream = exchange()
    connection.data_received(HEAD + began)
    connection.data_received(opening)
    sent = 0
    while not transport.closed:
        connection.data_received(piece)
        sent += len(piece)
        assert sent <= HEADER_BYTES + len(piece)
    assert sent > HEADER_BYTES - len(opening) - len(piece)
    with pytest.raises(EngineFailed, match="trailers or chunk headers are too large"):
        await read_all(stream)


@pytest.mark.parametrize("at", [0, 1, 3, 5, 6], ids=str)
async def test_an_answer_may_have_any_number_of_chunks_and_trailers_within_bounds(at: int) -> None:
    """at: where each chunk is cut between two reads."""
    connection, transport, stream = exchange()
    connection.data_received(HEAD)
    chunk, times = b"1\r\nx\r\n", HEADER_BYTES // 4
    for _ in range(times):
        connection.data_received(chunk[:at])
        connection.data_received(chunk[at:])
    trailer = b"0\r\nX-T: " + b"a" * (HEADER_BYTES // 2)
    connection.data_received(trailer)
    connection.data_received(b"\r\n\r\n")
    assert await read_all(stream) == b"x" * times
    assert not transport.closed


@pytest.mark.parametrize("framing", [b"content-length: %d\r\n" % (3 * HEADER_BYTES), b"connection: close\r\n"])
async def test_a_long_body_is_no_header(framing: bytes) -> None:
    connection, _, stream = exchange()
    connection.data_received(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n")
    for _ in range(3):
        connection.data_received(b"x" * HEADER_BYTES)
    connection.connection_lost(None)
    assert await read_all(stream) == b"x" * 3 * HEADER_BYTES


async def test_headers_and_what_a_body_begins_with_are_bounded_apart() -> None:
    connection, transport, stream = exchange()
    connection.data_received(HEAD[:-2] + b"x: ")
    connection.data_received(b"y" * (HEADER_BYTES - 100))
    connection.data_received(b"\r\n\r\n")
    connection.data_received(b"1;" + b"e" * (HEADER_BYTES - 100))
    connection.data_received(b"\r\nx\r\n0\r\n\r\n")
    assert await read_all(stream) == b"x"
    assert not transport.closed


async def test_closing_an_unfinished_answer_aborts_the_connection() -> None:
    connection, transport, stream = exchange()
    connection.data_received(CHUNKED[:60])
    stream.close()
    assert transport.closed
    stream.close()
    with pytest.raises(EngineFailed):
        await read_all(stream)


async def test_cancelling_a_read_loses_nothing() -> None:
    connection, _, stream = exchange()
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    connection.data_received(SIZED)
    assert await read_all(stream) == EVENTS
