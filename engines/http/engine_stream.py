"""An engine's response as it arrives, with backpressure on the engine while no reader takes it."""

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
    """One response as it arrives. The reader must always call `close`, which costs nothing after a clean end."""

    def __init__(self, transport: asyncio.Transport, origin: Origin, loop: asyncio.AbstractEventLoop) -> None:
        """Only `Connection.send` calls this."""
        self.status = 0
        """0 until the response's head has arrived."""
        self.retry_after_s: float | None = None
        """The engine's `Retry-After`; None if it sends none."""
        self.on_change: Callable[[], None] | None = None
        """Called in the socket's callback when `take` has data or the response has ended, instead of waking a reader. A
        relay uses it to pass bytes on without waiting. It must not raise."""
        self._transport = transport
        self._origin = origin
        self.loop = loop
        """Kept, because Python 3.11 asks the kernel for its process id to find the running loop."""
        self.pieces: list[bytes] = []
        """Unread chunks of the body. The code that adds a chunk also adds its size to `unread_bytes`, and calls
        `changed` once it has parsed the whole read."""
        self.unread_bytes = 0
        """Size of the unread chunks."""
        self.over = False
        """Whether the response has ended; `read` reports whether the end was clean."""
        self._error: EngineFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._paused = False
        self._late = False
        """Whether the response's head has missed its deadline."""

    @property
    def paused(self) -> bool:
        """Whether reading from the engine is paused, because its bytes are not taken."""
        return self._paused

    async def responded(self, timeout_s: float) -> None:
        """Return once the status is known. Raises EngineFailed, or EngineTimeout after `timeout_s`. Cancelling is
        safe."""
        if self.status:
            return
        self._late = False
        timer = self.loop.call_later(timeout_s, self._give_up)
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
        """All bytes since the last call, waiting for at least one; b"" at a clean end.

        Raises EngineFailed if the response was cut short or is not HTTP, once everything before the cut has been read.
        Only one caller may wait at a time; cancelling loses no data.
        """
        while not self.pieces:
            if self._error is not None:
                raise self._error
            if self.over:
                return b""
            await self._change()
        return self.take()

    def take(self) -> bytes:
        """All bytes since the last call, possibly none."""
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
        """Stop reading: a response that has not ended loses its connection, which stops the engine. Idempotent."""
        if not self.over:
            self.fail("closed by us")
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading from the engine until `take`."""
        if not self._paused:
            self._paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def end(self) -> None:
        """Mark the body as complete; the caller then calls `changed`."""
        self.over = True
        self._resume()

    def fail(self, reason: str) -> None:
        """End the response with an error, because its rest will not arrive."""
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
        self._waiter = self.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class CutStream(EngineStream):
    """A response whose choices begin with an opening, which the reader does not receive."""

    def __init__(
        self, transport: asyncio.Transport, origin: Origin, loop: asyncio.AbstractEventLoop, opening: str
    ) -> None:
        super().__init__(transport, origin, loop)
        self._cut = OpeningCut(opening)

    async def read(self) -> bytes:
        """Like `EngineStream.read`. Bytes that complete no event do not count as the end."""
        while not (data := await super().read()):
            if self.over and not self.pieces and self._error is None:
                break
        return data

    def take(self) -> bytes:
        """Like `EngineStream.take`, in whole events. Raises EngineFailed if a choice begins without the opening."""
        data = super().take()
        return self._cut.feed(data) if self.status == HTTPStatus.OK else data


def silent(origin: Origin, timeout_s: float) -> EngineTimeout:
    """The error for an engine that sent nothing within `timeout_s`."""
    return EngineTimeout(
        f"The engine did not answer within {timeout_s:g} s.", retry_after_s=RETRY_AFTER_S, detail=origin.place
    )
