"""What the router sends to one gateway: a bounded queue and the one writer that empties it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from contracts.proto import router_pb2 as pb
from router import wire


class GatewayStream:
    """The sending half of one connection. `closed` resolves with the reason when the stream is to be ended."""

    def __init__(self, limit: int, batch: int) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.heard = 0
        """Messages read from the gateway, pings included."""
        self._outbox: deque[pb.RouterMessage] = deque()
        self._filled = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._limit = limit
        self._batch = batch

    def __len__(self) -> int:
        return len(self._outbox)

    def send(self, message: pb.RouterMessage) -> None:
        """Queue a message; closes the stream when the gateway has stopped reading."""
        if len(self._outbox) >= self._limit:
            self.close(f"{self._limit} answers wait and are not read")
            return
        self._outbox.append(message)
        self._filled.set()
        self._idle.clear()

    def close(self, reason: str) -> None:
        """Ask for the stream to be ended; the first reason stays."""
        if not self.closed.done():
            self.closed.set_result(reason)

    async def flushed(self) -> None:
        """Return when everything queued so far has been handed to gRPC."""
        await self._idle.wait()

    async def write_to(self, context: Any) -> None:
        """Send what is queued, for ever. Raises when the connection is gone."""
        outbox = self._outbox
        while True:
            await self._filled.wait()
            while outbox:
                taken = [outbox.popleft() for _ in range(min(len(outbox), self._batch))]
                await context.write(wire.joined_for_gateway(taken))
            self._filled.clear()
            self._idle.set()
