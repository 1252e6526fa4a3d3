"""A customer that costs almost nothing: one request on a connection of its own, read or left at a chosen chunk.

Written on a bare socket because the load is the point: an SDK would take more of the machine than the platform does.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import cast


class End(StrEnum):
    ANSWERED = "answered"
    LEFT = "left"
    """The customer closed the connection."""
    REFUSED = "refused"
    """503 with a reason: to be tried again."""
    BROKEN = "broken"
    """The connection ended in the middle, as it does when its gateway is killed, or was not accepted."""
    FAILED = "failed"
    """Any other status, or an error event."""


class Customer(asyncio.Protocol):
    """Reads one answer. `ended` gets how it ended; `request_id` is known once the head has come."""

    def __init__(self, request: bytes, leave_after_events: int | None) -> None:
        """leave_after_events: 0 leaves as soon as the request is sent; None stays."""
        self._request = request
        self._leave_after = leave_after_events
        self._head = b""
        self.events = 0
        self._tail = b""
        self._whole = b""
        self._chunked = False
        self._transport: asyncio.Transport
        self.status = 0
        self.request_id = ""
        self.ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)
        if self._leave_after == 0:
            # in the next turn, so that the request is on its way
            asyncio.get_running_loop().call_soon(self._finish, End.LEFT)

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        if not self.status:
            self._head += data
            head, found, data = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            self._read_head(head)
        self.events += data.count(b"data: {")
        self._tail = (self._tail + data)[-64:]
        if self.status != 200:
            self._whole += data
        if self._leave_after is not None and self.events >= self._leave_after:
            self._finish(End.LEFT)

    def connection_lost(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if self.status == 503:
            self._finish(End.REFUSED)
        elif self.status and self.status != 200:
            self._finish(End.FAILED)
        elif self.status == 200 and (b"[DONE]" in self._tail or not self._chunked):
            self._finish(End.ANSWERED)
        elif self.status == 200 and b'"error"' in self._tail:
            self._finish(End.FAILED)
        else:
            self._finish(End.BROKEN)

    def _read_head(self, head: bytes) -> None:
        lines = head.split(b"\r\n")
        self.status = int(lines[0].split(b" ", 2)[1])
        for line in lines[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"x-request-id":
                self.request_id = value.strip().decode()
            elif name.lower() == b"transfer-encoding":
                self._chunked = True

    def _finish(self, end: End) -> None:
        if not self.ended.done():
            self.ended.set_result(end)
            self._transport.abort() if end is End.LEFT else self._transport.close()


async def ask(port: int, request: bytes, leave_after_events: int | None, patience_s: float | None) -> Customer:
    """One request from beginning to end. patience_s: leave after so long, whatever has come; None: never.
    Cancelling leaves at once."""
    loop = asyncio.get_running_loop()
    try:
        _, customer = await loop.create_connection(lambda: Customer(request, leave_after_events), "127.0.0.1", port)
    except OSError:
        customer = Customer(request, None)
        customer.ended.set_result(End.BROKEN)
        return customer
    timer = None if patience_s is None else loop.call_later(patience_s, customer._finish, End.LEFT)
    try:
        await customer.ended
    finally:
        if timer is not None:
            timer.cancel()
        customer._transport.abort()
    return customer
