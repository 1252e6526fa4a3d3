"""HTTPS on the public port: channels work as without it, handshakes are bounded, certificates change without a cut."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from gateway.http.certificate import Certificate, certificate_of
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.config import TlsConfig
from gateway.http.connections import Waiting
from tests.certificates import write_certificate
from tests.gateway.http.test_client_protocol import ends_as_it_is_lost
from tests.gateway.served import Served, on_uvloop, served
from tests.waiting import eventually

REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def config(tmp_path: Path) -> TlsConfig:
    """A pair that works; the files are looked at without a pause."""
    made = TlsConfig(str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem"), reload_interval_s=0.1)
    write(made)
    return made


def write(config: TlsConfig, name: str = "localhost") -> bytes:
    return write_certificate(Path(config.certificate_file), Path(config.key_file), name)


def trusting(config: TlsConfig) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.certificate_file)


async def hello(scope: Any, receive: Any, send: Any) -> None:
    assert scope["scheme"] == "https"
    channel: ClientConnection = scope[SCOPE_KEY]
    channel.start(200, [(b"content-length", b"5")])
    channel.end(b"hello")


@contextlib.asynccontextmanager
async def serving(config: TlsConfig, app: Any = hello, **limits: Any) -> AsyncIterator[Served]:
    certificate = Certificate(config)
    async with certificate.task, served(app, certificate, **limits) as server:
        yield server


async def greeted(peer: Peer) -> bytes:
    """Ask on this connection; returns the certificate that it was made with."""
    peer[1].write(REQUEST)
    assert (await peer[0].readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
    assert await peer[0].readexactly(5) == b"hello"
    found: bytes = peer[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
    return found


@on_uvloop
async def test_a_request_over_tls_arrives_even_with_the_handshakes_last_flight(config: TlsConfig) -> None:
    async with serving(config) as server:
        for _ in range(20):
            peer = await server.connect(REQUEST, ssl=trusting(config), server_hostname="localhost")
            assert (await peer[0].readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert server.ended == {}


@on_uvloop
async def test_a_slow_reader_fills_the_channel_and_empties_it_and_small_pieces_leave_at_once(config: TlsConfig) -> None:
    states: list[bool] = []
    full = asyncio.Event()
    written = 0

    async def large(scope: Any, receive: Any, send: Any) -> None:
        nonlocal written
        channel: ClientConnection = scope[SCOPE_KEY]
        plain = channel._cycle.transport.get_extra_info("socket")
        states.append(bool(plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        channel.start(200, [])
        while not channel.full:
            channel.write(b"x" * 65_536)
            written += 65_536
            await asyncio.sleep(0)
        full.set()
        await channel.drained()
        states.append(channel.full)
        channel.end(b"")

    async with serving(config, large) as server:
        reader, _ = await server.connect(REQUEST, ssl=trusting(config), server_hostname="localhost")
        await full.wait()
        assert states == [True]
        read = tail = b""
        size = 0
        while not tail.endswith(b"0\r\n\r\n"):
            read = await reader.read(1 << 20)
            size += len(read)
            tail = (tail + read)[-16:]
        assert size > written
        assert states == [True, False]


@on_uvloop
async def test_over_tls_a_client_that_reads_on_gets_all_of_its_last_answer_and_a_stalled_one_is_cut(
    config: TlsConfig,
) -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        channel: ClientConnection = scope[SCOPE_KEY]
        channel.start(200, [(b"content-length", b"20000000")])
        channel.end(b"x" * 20_000_000)

    # the kernels must not hold all of the last 8 MB, or nothing would wait here and the connection would end
    async with serving(config, large, unread_timeout_s=60) as server:
        reader, _ = await server.connect(
            REQUEST.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"),
            receive_buffer=200_000,
            ssl=trusting(config),
            server_hostname="localhost",
        )
        await server.waits_for(Waiting.CLOSING)
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(3):
            await reader.readexactly(4_000_000)
            server.passes(60)
        assert server.ended == {}
        for _ in range(2):  # its kernel may acknowledge some bytes only now
            server.passes(60)
        assert server.ended == {"closing_timeout": 1}
        await server.holds(0)


@on_uvloop
async def test_a_client_that_does_not_end_tls_delays_no_shutdown(config: TlsConfig) -> None:
    def silent(port: int) -> ssl.SSLSocket:
        """A client that has its response and reads nothing more, not even the end."""
        connected = trusting(config).wrap_socket(
            socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"
        )
        connected.sendall(REQUEST)
        assert connected.recv(1)
        return connected

    async with serving(config) as server:
        client = await asyncio.to_thread(silent, server.port)
        await server.waits_for(Waiting.IDLE)
        server.server.should_exit = True
        await server.waits_for(Waiting.CLOSING)
        server.passes(server.table.config.unread_timeout_s)
        await server.holds(0)
        client.close()


@on_uvloop
async def test_over_tls_an_answer_may_end_in_the_turn_in_which_its_connection_is_lost(config: TlsConfig) -> None:
    certificate = Certificate(config)
    await ends_as_it_is_lost(certificate, ssl=trusting(config), server_hostname="localhost")


@on_uvloop
async def test_leaving_over_tls_is_told(config: TlsConfig) -> None:
    gone, begun = asyncio.Event(), asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        scope[SCOPE_KEY].on_gone = gone.set
        scope[SCOPE_KEY].start(200, [])
        begun.set()
        await gone.wait()
        scope[SCOPE_KEY].end(b"")

    async with serving(config, waits) as server:
        _, writer = await server.connect(REQUEST, ssl=trusting(config), server_hostname="localhost")
        await begun.wait()
        writer.transport.abort()
        await gone.wait()
        await server.holds(0)


@on_uvloop
async def test_handshakes_count_and_end_in_time(config: TlsConfig) -> None:
    async with serving(config, head_timeout_s=60, max_connections=3) as server:
        silent = [await server.connect() for _ in range(3)]
        plain = await server.connect(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await plain[0].read(), "and it is no TLS"
        await greeted(await server.connect(ssl=trusting(config), server_hostname="localhost"))
        server.passes(60)
        for reader, _ in silent:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert server.ended["gave_way_limit"] >= 1
        assert server.ended["refused"] == 0
        await server.leave()
        await server.holds(0)


@on_uvloop
async def test_half_a_handshake_and_a_lost_one_leave_nothing(config: TlsConfig) -> None:
    async with serving(config, head_timeout_s=60) as server:
        waiting = await server.connect(b"\x16\x03\x01")
        leaving = await server.connect(b"\x16\x03\x01")
        leaving[1].transport.abort()
        await server.waits_for(Waiting.HEAD)
        server.passes(60)
        with contextlib.suppress(ConnectionError):
            assert await waiting[0].read() == b""
        await server.holds(0)


@on_uvloop
async def test_a_head_that_does_not_come_is_late_over_tls_too(config: TlsConfig) -> None:
    async with serving(config, head_timeout_s=60) as server:
        reader, writer = await server.connect(ssl=trusting(config), server_hostname="localhost")
        writer.write(REQUEST[:-2])
        await server.has_received(len(REQUEST) - 2)
        server.passes(60)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
        await server.holds(0)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
@on_uvloop
async def test_old_tls_is_refused(config: TlsConfig) -> None:
    async with serving(config) as server:
        for version, taken in ((ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_1, False)):
            context = trusting(config)
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            if taken:
                await greeted(await server.connect(ssl=context, server_hostname="localhost"))
            else:
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await server.connect(ssl=context, server_hostname="localhost")


@on_uvloop
async def test_a_new_pair_is_used_by_new_connections_and_open_ones_go_on(config: TlsConfig) -> None:
    async with serving(config) as server:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        kept = await server.connect(ssl=context)
        old = await greeted(kept)
        new = write(config, "renewed")

        async def renewed() -> bool:
            return await greeted(await server.connect(ssl=context)) == new

        await eventually(renewed)
        assert await greeted(kept) == old


def test_a_bad_new_pair_is_told_once_and_the_one_before_stays(
    config: TlsConfig, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    certificate = Certificate(config)
    context = certificate.context
    caplog.set_level(logging.INFO)
    certificate.renew()
    assert (certificate.context, caplog.messages) == (context, [])
    kept = Path(config.key_file).read_bytes()
    write_certificate(Path(config.certificate_file), tmp_path / "its.pem")
    for _ in range(3):
        certificate.renew()
    assert certificate.context is context
    assert len(caplog.messages) == 1
    assert config.key_file in caplog.messages[0]
    (tmp_path / "its.pem").rename(config.key_file)
    certificate.renew()
    assert certificate.context is not context
    context = certificate.context
    for spoil in (Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(kept)):
        spoil(Path(config.key_file))
        certificate.renew()
        assert certificate.context is context


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        ("certificate.pem", "", "gateway.tls.key_file"),
        ("", "key.pem", "gateway.tls.certificate_file"),
        ("absent.pem", "key.pem", "absent.pem cannot be read: No such file"),
        ("certificate.pem", "absent.pem", "absent.pem cannot be read: No such file"),
        ("key.pem", "certificate.pem", "not a certificate and its key"),
        ("certificate.pem", "other.pem", "not a certificate and its key"),
        ("certificate.pem", "locked.pem", "without a passphrase"),
    ],
)
def test_a_pair_that_cannot_be_used_stops_the_start(
    config: TlsConfig, tmp_path: Path, certificate: str, key: str, said: str
) -> None:
    from cryptography.hazmat.primitives import serialization as pem

    write_certificate(tmp_path / "ignored.pem", tmp_path / "other.pem")
    private = pem.load_pem_private_key((tmp_path / "key.pem").read_bytes(), None)
    (tmp_path / "locked.pem").write_bytes(
        private.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret"))
    )
    certificate, key = (str(tmp_path / name) if name else "" for name in (certificate, key))
    with pytest.raises(ConfigError) as error:
        certificate_of(TlsConfig(certificate, key))
    assert said in error.value.message


def test_without_files_there_is_no_tls() -> None:
    assert certificate_of(TlsConfig()) is None


@on_uvloop
async def test_over_tls_a_replaced_client_gets_the_reason_and_garbage_is_refused_after_the_answer(
    config: TlsConfig,
) -> None:
    go_on = asyncio.Event()

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await go_on.wait()
        await hello(scope, receive, send)

    async with serving(config, waits, max_connections=1) as server:
        paced = await server.connect(REQUEST, ssl=trusting(config), server_hostname="localhost")
        await server.waits_for(None)
        peer = await server.connect(REQUEST, ssl=trusting(config), server_hostname="localhost")
        received = await paced[0].read()
        assert received.startswith(b"HTTP/1.1 503 ")
        assert b"connections_exhausted" in received
        await server.waits_for(None)
        peer[1].write(b"nonsense\r\n\r\n")
        await server.has_received(2 * len(REQUEST) + 12)
        go_on.set()
        received = await peer[0].read()
        assert received.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"hello" in received
        assert b"HTTP/1.1 400 " in received
        await server.holds(0)
