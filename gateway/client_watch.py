"""Notices that a client has left, or has stopped reading, and interrupts the work done for it.

ASGI servers tell of a disconnect only to whoever waits in `receive()`; none makes `send()` fail. So one watcher stands
beside every request. Like `asyncio.timeout`, it cancels the task inside its block and turns that one cancellation into
`ClientGone` on the way out; a cancellation from anywhere else passes through untouched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

Receive = Callable[[], Awaitable[Any]]


class ClientGone(Exception):
    """The client disconnected, or was cut because it stalled."""


class ClientWatch:
    """`async with ClientWatch(receive):` around everything done for one client."""

    __slots__ = ("_fired", "_receive", "_task", "_watcher")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._fired = False

    async def __aenter__(self) -> ClientWatch:
        self._task = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, watcher = self._task, self._watcher
        assert task is not None
        assert watcher is not None
        self._task = None
        watcher.cancel()
        if self._fired and task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise ClientGone from None

    def cut(self) -> None:
        """Treat the client as gone: it has stopped reading."""
        if self._task is not None and not self._fired:
            self._fired = True
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.cut()
                return
