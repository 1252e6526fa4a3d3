"""Keeps the body of a request that offers an upgrade (`Upgrade: h2c`, as Java's HttpClient sends).

httptools stops after the head of such a request and takes all that follows for the other protocol. The gateway speaks
none, so by RFC 9110, 7.8 it serves the request: a second parser continues after the head, with the same framing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httptools

FRAMING = (b"content-length", b"transfer-encoding")
"""The headers that define where a body ends."""


def framing_of(headers: Sequence[tuple[bytes, bytes]], *, keep_alive: bool) -> bytes:
    """The head that a parser needs to read the body after it. keep_alive: whether another request may follow."""
    lines = [b"%b: %b\r\n" % header for header in headers if header[0] in FRAMING]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    return b"POST / HTTP/1.1\r\n" + b"".join(lines) + b"\r\n"


def read_on(protocol: Any, framing: bytes) -> None:
    """Give the protocol a parser positioned after the head of the offered request. A request without a body
    is complete with this call. Raises HttpParserError for a body without valid framing."""
    protocol.parser = httptools.HttpRequestParser(_BehindHead(protocol))
    protocol.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
    protocol.parser.feed_data(framing)


class _BehindHead:
    """Forwards a parser's callbacks, except those of the first head, since the protocol has handled the real one."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._in_head = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._in_head:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._in_head:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._in_head:
            self._protocol.on_headers_complete()
        self._in_head = False
