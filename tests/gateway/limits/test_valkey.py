"""The multiplexed client: order, one write per tick, time-outs that keep the order, addresses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import hiredis
import pytest

from contracts.errors import ConfigError
from storage.valkey import CallTimeout, ConnectionLost, Valkey
from storage.valkey_command import pack
from tests.gateway.limits.store import AnyStore
from tests.virtual_time import in_virtual_time
from tests.waiting import eventually


@pytest.fixture
async def client(store: AnyStore) -> AsyncIterator[Valkey]:
    client = Valkey(store.url, timeout_s=5)
    await client.start()
    await client.wait_ready()
    yield client
    await client.stop()


class Peer:
    """A server under the test's command: keeps what it read, answers what it is told to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reads: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.got = asyncio.Event()

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self.writers:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while data := await reader.read(1 << 20):
            self.reads.append(data)
            self.got.set()


async def test_replies_reach_their_callers(client: Valkey) -> None:
    replies = await asyncio.gather(*(client.call(pack(("ECHO", str(i)))) for i in range(2_000)))
    assert replies == [str(i).encode() for i in range(2_000)]


async def test_an_error_reply_reaches_only_its_caller(client: Valkey) -> None:
    replies: Any = await asyncio.gather(
        client.call(pack(("ECHO", "a"))),
        client.call(pack(("NO-SUCH-COMMAND",))),
        client.call(pack(("ECHO", "b"))),
        return_exceptions=True,
    )
    assert (replies[0], replies[2]) == (b"a", b"b")
    assert isinstance(replies[1], hiredis.ReplyError)


@in_virtual_time
async def test_calls_of_one_tick_are_one_write(tmp_path: Path) -> None:
    async with Peer(tmp_path / "s") as peer:
        client = Valkey(f"unix://{peer.path}", timeout_s=5)
        await client.start()
        calls = [asyncio.ensure_future(client.call(pack(("PING",)))) for _ in range(50)]
        await peer.got.wait()
        assert peer.reads == [pack(("PING",)) * 50]
        peer.writers[0].write(b"+PONG\r\n" * 50)
        assert await asyncio.gather(*calls) == [b"PONG"] * 50
        await client.stop()


@in_virtual_time
async def test_a_late_reply_is_not_given_to_the_next_caller(tmp_path: Path) -> None:
    async with Peer(tmp_path / "s") as peer:
        client = Valkey(f"unix://{peer.path}", timeout_s=0.1)
        await client.start()
        with pytest.raises(CallTimeout):
            await client.call(pack(("GET", "first")))
        second = asyncio.ensure_future(client.call(pack(("GET", "second"))))
        await asyncio.sleep(0)
        peer.writers[0].write(b"+first\r\n+second\r\n")
        assert await second == b"second"
        await client.stop()


async def test_a_cancelled_caller_does_not_shift_the_others(client: Valkey) -> None:
    calls = [asyncio.ensure_future(client.call(pack(("ECHO", str(i))))) for i in range(10)]
    await asyncio.sleep(0)
    calls[3].cancel()
    replies = await asyncio.gather(*calls, return_exceptions=True)
    assert [reply for i, reply in enumerate(replies) if i != 3] == [str(i).encode() for i in range(10) if i != 3]


@in_virtual_time
async def test_disconnect_fails_what_is_in_flight_and_reconnects(tmp_path: Path) -> None:
    changes: list[bool] = []
    async with Peer(tmp_path / "s") as peer:
        client = Valkey(f"unix://{peer.path}", timeout_s=5)
        client.on_change = changes.append
        await client.start()
        calls = [asyncio.ensure_future(client.call(pack(("PING",)))) for _ in range(3)]
        await peer.got.wait()
        peer.writers[0].close()
        assert [type(each) for each in await asyncio.gather(*calls, return_exceptions=True)] == [ConnectionLost] * 3
        with pytest.raises(ConnectionLost):
            await client.call(pack(("PING",)))
        await eventually(lambda: len(changes) == 3)
        assert changes == [True, False, True]
        await client.stop()


async def test_a_connection_that_was_lost_in_this_turn_is_not_ready(client: Valkey) -> None:
    """Fault: a caller that waited got a client that was not connected."""
    assert client._link is not None
    client._link.connection_lost(None)
    await client.wait_ready()
    assert await client.call(pack(("ECHO", "a"))) == b"a"


@in_virtual_time
async def test_a_server_that_never_answers_again_is_given_up(tmp_path: Path) -> None:
    async with Peer(tmp_path / "s") as peer:
        client = Valkey(f"unix://{peer.path}", timeout_s=0.02)
        lost = asyncio.Event()
        client.on_change = lambda connected: None if connected else lost.set()
        await client.start()
        with pytest.raises(CallTimeout):
            await client.call(pack(("PING",)))
        await lost.wait()
        await client.stop()


@in_virtual_time
async def test_nonsense_closes_the_connection(tmp_path: Path) -> None:
    async with Peer(tmp_path / "s") as peer:
        client = Valkey(f"unix://{peer.path}", timeout_s=5)
        await client.start()
        call = asyncio.ensure_future(client.call(pack(("PING",))))
        await peer.got.wait()
        peer.writers[0].write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(ConnectionLost):
            await call
        await client.stop()


@in_virtual_time
async def test_password_and_database_come_first(tmp_path: Path) -> None:
    async with Peer(tmp_path / "s") as peer:
        peer_port = await asyncio.start_server(peer._serve, "127.0.0.1", 0)
        port = peer_port.sockets[0].getsockname()[1]
        client = Valkey(f"redis://me:p%40ss@127.0.0.1:{port}/7", timeout_s=0.05)
        await client.start()
        await peer.got.wait()
        assert peer.reads[0] == pack(("AUTH", "me", "p@ss"))
        assert not client.connected
        await client.stop()
        peer_port.close()


@pytest.mark.parametrize("url", ["", "valkey.sock", "http://127.0.0.1", "unix://", "postgres://u:secret@h/db"])
def test_what_is_no_address_stops_the_start(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Valkey(url, 1)
    assert "unix:///" in caught.value.message
    assert "secret" not in caught.value.message
