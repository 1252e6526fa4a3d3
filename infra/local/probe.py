"""Readiness checks: a port accepts connections, or an HTTP path answers 200. They never raise."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

PROBE_TIMEOUT_S = 3.0


def accepts(host: str, port: int) -> Callable[[], Awaitable[bool]]:
    """A check that a TCP connection is accepted."""

    async def check() -> bool:
        return await _ask(host, port, b"") is not None

    return check


def answers(host: str, port: int, path: str, *, secure: bool = False) -> Callable[[], Awaitable[bool]]:
    """A check that GET `path` answers with status 200. secure: over TLS, without a check of the certificate."""
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()

    context = _any_certificate() if secure else None

    async def check() -> bool:
        line = await _ask(host, port, request, context)
        return line is not None and line.split()[1:2] == [b"200"]

    return check


def _any_certificate() -> ssl.SSLContext:
    """Accepts any certificate: a probe connects to our own process, by an address that no certificate names."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _ask(host: str, port: int, request: bytes, context: ssl.SSLContext | None = None) -> bytes | None:
    """The first line of the response (empty if the request is empty), or None if no server answers."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                if not request:
                    return b""
                writer.write(request)
                line = await reader.readline()
                await reader.read()  # to the end: otherwise, closing would reset the server's connection
                return line
            finally:
                writer.close()
                await writer.wait_closed()
    except (OSError, TimeoutError, ValueError):
        return None
