"""One end of the connection between a gateway and the router, which carries whole messages without a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import cast

from google.protobuf.message import Message

from router.protocol.framing import FrameReader, FrameTooLongError, framed


class MessageStream(asyncio.Protocol):
    """The protocol of one connection, from its first byte to its last.

    receive: called with every payload, in order, in the socket's callback. resumed: called when `writable` becomes true
    again. lost: called once, with the reason, when the connection has ended.
    """

    def __init__(
        self,
        limit_bytes: int,
        receive: Callable[[bytes], None],
        resumed: Callable[[], None],
        lost: Callable[[str], None],
    ) -> None:
        self.writable = False
        """Whether the connection is up and the other end keeps up. Data that is written otherwise stays in memory."""
        self.frames = FrameReader(limit_bytes)
        self._receive = receive
        self._resumed = resumed
        self._lost = lost
        self._reason = "the other end closed the connection"
        self._transport: asyncio.Transport | None = None

    def write(self, messages: Iterable[Message]) -> None:
        """Send messages in one write. Does nothing after the connection is lost."""
        if self._transport is not None:
            self._transport.write(b"".join([framed(message) for message in messages]))

    def close(self, reason: str) -> None:
        """End the connection once all written data has been sent."""
        if self._transport is not None and not self._transport.is_closing():
            self._reason = reason
            self.writable = False
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End the connection now."""
        if self._transport is not None:
            if not self._transport.is_closing():
                self._reason = reason
            self.writable = False
            self._transport.abort()

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it
        self.writable = True

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self.frames.feed(data):
                self._receive(payload)
        except FrameTooLongError as error:
            self.abort(str(error))

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self.writable = True
            self._resumed()

    def connection_lost(self, error: Exception | None) -> None:
        self.writable = False
        self._transport = None
        self._lost(self._reason if error is None else str(error) or repr(error))
