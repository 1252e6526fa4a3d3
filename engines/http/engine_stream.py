"""An engine's response as it arrives, with backpressure on the engine while it is not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from contracts.errors import EngineFailed, EngineTimeout
from engines.http.opening_cut import OpeningCut
from engines.http.origin import Origin

BUFFER_BYTES = 1 << 20
"""Unread response bytes at which reading from the engine pauses."""
RETRY_AFTER_S = 1.0


class EngineStream:
    """One response as it arrives. `close` is always due; after the clean end it costs nothing."""

    def __init__(self, transport: asyncio.Transport, origin: Origin) -> None:
        """Made by `Connection.send` only."""
        self.status = 0
        """0 until the response's head has come."""
        self.retry_after_s: float | None = None
        """Time for which the engine asks not to be contacted; None: it sends none."""
        self.on_change: Callable[[], None] | None = None
        """Called in the socket's callback when `take` has data or the response is over, instead of waking a reader: for
        a relay that passes bytes on without waiting. It must not raise."""
        self._transport = transport
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self.pieces: list[bytes] = []
        """Chunks of the body that `take` has. Who adds one adds its size, and calls `changed` once the whole read is
        parsed."""
        self.unread_bytes = 0
        """Bytes that `take` has."""
        self.over = False
        """Nothing more will arrive; `read` reports whether the end was clean."""
        self._error: EngineFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self._late = False
        """The response's head did not come in time."""

    @property
    def paused(self) -> bool:
        """Reading from the engine is paused, because its bytes are not read."""
        return self._paused

    async def responded(self, timeout_s: float) -> None:
        """Return when the status is known. Raises EngineFailed, and EngineTimeout after `timeout_s`. Cancelling loses
        nothing."""
        if self.status:
            return
        self._late = False
        timer = self._loop.call_later(timeout_s, self._give_up)
        try:
            while not self.status:
                if self._error is not None:
                    raise self._error
                if self._late:
                    raise silent(self._origin, timeout_s)
                await self._change()
        finally:
            timer.cancel()

    async def read(self) -> bytes:
        """All bytes that came since the last call, waiting for at least one; b"" at the clean end.

        Raises EngineFailed when the response was cut short or is not HTTP, after everything before the cut was read.
        One caller at a time; cancelling loses nothing.
        """
        while not self.pieces:
            if self._error is not None:
                raise self._error
            if self.over:
                return b""
            await self._change()
        return self.take()

    def take(self) -> bytes:
        """All bytes that came since the last call, perhaps none."""
        pieces = self.pieces
        if not pieces:
            return b""
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self.unread_bytes = 0
        if self._paused:
            self._resume()
        return data

    def close(self) -> None:
        """Stop here: a response that has not ended loses its connection, which stops the engine. Idempotent."""
        if not self.over:
            self.fail("closed by us")
            self._transport.abort()

    def pause(self) -> None:
        """Read no more from the engine until `take`."""
        if not self._paused:
            self._paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def end(self) -> None:
        """The body is complete; `changed` follows."""
        self.over = True
        self._resume()

    def fail(self, reason: str) -> None:
        """The rest of the response will not arrive."""
        if self.over:
            return
        self.over = True
        self._error = EngineFailed(
            f"The engine failed: {reason}.", retry_after_s=RETRY_AFTER_S, detail=self._origin.place
        )
        self.changed()

    def changed(self) -> None:
        """Wake the reader."""
        if self.on_change is not None:
            self.on_change()
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def _give_up(self) -> None:
        self._late = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _change(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class CutStream(EngineStream):
    """A response whose choices begin with an opening, which its reader does not get."""

    def __init__(self, transport: asyncio.Transport, origin: Origin, opening: str) -> None:
        super().__init__(transport, origin)
        self._cut = OpeningCut(opening)

    async def read(self) -> bytes:
        """Like `EngineStream.read`. Bytes of which no event is complete are not the end."""
        while not (data := await super().read()):
            if self.over and not self.pieces and self._error is None:
                break
        return data

    def take(self) -> bytes:
        """Like `EngineStream.take`, in whole events. Raises EngineFailed when a choice does not begin with the
        opening."""
        data = super().take()
        return self._cut.feed(data) if self.status == HTTPStatus.OK else data


def silent(origin: Origin, timeout_s: float) -> EngineTimeout:
    """The error when nothing arrived within `timeout_s`."""
    return EngineTimeout(
        f"The engine did not answer within {timeout_s:g} s.", retry_after_s=RETRY_AFTER_S, detail=origin.place
    )
