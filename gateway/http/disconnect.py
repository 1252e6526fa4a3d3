"""Notices that a client has left, or has stopped reading, and interrupts the work done for it.

`ClientWatch` works like `asyncio.timeout`: it cancels the task inside its block and turns that one cancellation into
`ClientGone` at the block's end. Any other cancellation passes through unchanged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol


class Disconnectable(Protocol):
    """Reports that a client has left (`gateway.http.client_connection.ClientConnection`)."""

    on_gone: Callable[[], None] | None

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        ...


class ClientGone(Exception):
    """The client disconnected, or was cut because it stalled."""


class ClientWatch:
    """Context for all work for one client: `async with ClientWatch(connection):`."""

    __slots__ = ("_connection", "_fired", "_task", "since_s")

    def __init__(self, connection: Disconnectable) -> None:
        self._connection = connection
        self._task: asyncio.Task[Any] | None = None
        self._fired = False
        self.since_s: float | None = None
        """Time at which the client left (`time.perf_counter`)."""

    async def __aenter__(self) -> ClientWatch:
        if self._connection.gone:
            raise ClientGone
        self._task = asyncio.current_task()
        self._connection.on_gone = self.cut
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        assert task is not None
        self._task = None
        self._connection.on_gone = None
        if self._fired and task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise ClientGone from None

    def cut(self) -> None:
        """Treat the client as gone, because it has left or stopped reading."""
        if self._task is not None and not self._fired:
            self._fired = True
            self.since_s = time.perf_counter()
            self._task.cancel()
