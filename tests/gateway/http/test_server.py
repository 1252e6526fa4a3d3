"""A server that is told to end: who has a connection is answered, and who asks for one finds another server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.http.certificate import Certificate
from gateway.http.client_connection import SCOPE_KEY
from gateway.http.config import TlsConfig
from gateway.http.server import ACCEPTED_AT_ONCE
from tests.certificates import write_certificate
from tests.gateway.served import Served, on_uvloop, served
from tests.waiting import GUARD_S, eventually

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
CONNECTIONS = 100
SYN_SENT = 2
"""As in Linux' tcp_states.h."""


async def answers(scope: Any, receive: Any, send: Any) -> None:
    channel = scope[SCOPE_KEY]
    channel.start(200, [(b"content-length", b"2")])
    channel.end(b"ok")


def is_last_answer(received: bytes) -> bool:
    """Served, and told that the connection ends."""
    return received.startswith(b"HTTP/1.1 200 ") and b"connection: close\r\n" in received and received.endswith(b"ok")


async def closed(running: Served) -> None:
    """Return once its port is closed."""
    await eventually(lambda: running.listener.socket.fileno() < 0)


@on_uvloop
async def test_clients_that_connect_at_once_are_accepted_in_few_turns_of_the_loop() -> None:
    async with served(answers) as running, contextlib.AsyncExitStack() as stack:
        for _ in range(ACCEPTED_AT_ONCE):  # without a turn in between
            stack.enter_context(socket.create_connection(("127.0.0.1", running.listener.port)))
        for _ in range(ACCEPTED_AT_ONCE // 2):
            await asyncio.sleep(0)
        assert len(running.table._held) == ACCEPTED_AT_ONCE


@on_uvloop
async def test_a_connection_that_has_said_nothing_yet_is_answered_after_the_port_is_closed() -> None:
    async with served(answers) as running:
        reader, writer = await running.connect()
        await running.holds(1)
        running.server.leave()
        await closed(running)
        writer.write(GET)
        assert is_last_answer(await reader.read())
        await running.task
        with pytest.raises(ConnectionRefusedError):
            await running.connect()


@on_uvloop
async def test_a_connection_that_is_kept_alive_serves_once_more_and_says_that_it_ends() -> None:
    async with served(answers) as running:
        reader, writer = await running.connect(GET)
        assert b"connection: close" not in await reader.readuntil(b"ok")
        running.server.leave()
        writer.write(GET)
        assert is_last_answer(await reader.read())
        await running.task


@on_uvloop
async def test_an_idle_connection_and_one_that_says_nothing_do_not_keep_the_process() -> None:
    """Nor does a balancer, after Ctrl-C."""
    async with served(answers, leave_after_s=60.0) as running:
        idle, _ = await running.connect(GET)
        await idle.readuntil(b"ok")
        silent, _ = await running.connect()
        await running.holds(2)
        running.server.handle_exit(signal.SIGINT, None)
        assert await idle.read() == b""
        assert await silent.read() == b""
        await running.task


@on_uvloop
async def test_an_answer_under_way_ends_as_it_would_have() -> None:
    go_on = asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        channel = scope[SCOPE_KEY]
        channel.start(200, [(b"content-length", b"10")])
        channel.write(b"first")
        await go_on.wait()
        channel.end(b" last")

    async with served(slow) as running:
        reader, _ = await running.connect(GET)
        await reader.readuntil(b"first")
        running.server.leave()
        await closed(running)
        go_on.set()
        assert await reader.read() == b" last"
        await running.task


@on_uvloop
async def test_a_handshake_of_tls_under_way_ends_and_its_request_is_answered(tmp_path: Path) -> None:
    config = TlsConfig(str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem"))
    write_certificate(Path(config.certificate_file), Path(config.key_file))
    async with served(answers, Certificate(config)) as running:
        trust = ssl.create_default_context(cafile=config.certificate_file)
        plain = socket.create_connection(("127.0.0.1", running.port))
        plain.setblocking(False)
        await running.holds(1)
        running.server.leave()
        await closed(running)
        reader, writer = await asyncio.open_connection(sock=plain, ssl=trust, server_hostname="localhost")
        writer.write(GET)
        assert is_last_answer(await reader.read())
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        await running.task


@on_uvloop
async def test_of_two_servers_on_a_port_one_leaves_and_no_connection_is_lost() -> None:
    async with served(answers) as staying, served(answers, port=staying.port) as leaving:

        async def one() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", staying.port)
            writer.write(GET)
            received = await reader.readuntil(b"ok")
            writer.close()
            return received

        async def many() -> list[bytes]:
            return [await one() for _ in range(CONNECTIONS)]

        asking = [asyncio.create_task(many()) for _ in range(4)]
        async with asyncio.timeout(GUARD_S):
            while leaving.server.server_state.total_requests < 20:  # noqa: ASYNC110  it has its share
                await asyncio.sleep(0)
        leaving.server.leave()
        received = [each for answers_of_one in await asyncio.gather(*asking) for each in answers_of_one]
        assert len(received) == 4 * CONNECTIONS
        assert all(each.startswith(b"HTTP/1.1 200 ") for each in received)
        await leaving.task
        assert leaving.server.server_state.total_requests + staying.server.server_state.total_requests == len(received)


@on_uvloop
async def test_after_sigterm_connections_are_taken_until_balancers_have_looked() -> None:
    async with served(answers, leave_after_s=60.0) as running:
        running.server.handle_exit(signal.SIGTERM, None)
        assert running.table.draining
        for _ in range(3):  # new ones, each ended by its answer
            reader, _ = await running.connect(GET)
            assert is_last_answer(await reader.read())
        running.server.handle_exit(signal.SIGTERM, None)
        await closed(running)
        await running.task


@pytest.mark.skipif(sys.platform != "linux", reason="filters of sockets are Linux'")
@on_uvloop
async def test_a_port_that_turns_away_begins_no_handshake_and_keeps_those_it_has() -> None:
    async with served(answers) as running:
        before, writer = await running.connect()
        await running.holds(1)
        running.listener.turn_away()
        with socket.socket() as late:
            late.setblocking(False)
            late.connect_ex(("127.0.0.1", running.port))
            writer.write(GET)  # a connection that stands is not touched
            assert await before.readuntil(b"ok")
            assert late.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == SYN_SENT
