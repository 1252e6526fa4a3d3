"""One keystroke's request while it is served, and how a newer request ends it.

Like `gateway.http.disconnect.ClientWatch`, it cancels the task inside its block and turns that one cancellation into an
exception of its own. Unlike there, the block may be left and entered again: attempts are closed outside of it.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any

from gateway.supersession.lineage import Keystroke

SUPERSEDED = "superseded"
"""Label of a superseded request in metrics and traces, instead of an error code."""


class Superseded(Exception):
    """The same user has continued to type, so this response is no longer wanted. by: the newer request's id."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


class InFlightRequest:
    """Use `async with request:` around each wait that a newer keystroke ends. It raises Superseded, at once if one has
    already arrived."""

    __slots__ = ("_fired", "_task", "by", "ended", "keystroke", "lineage", "request_id", "since_s", "spared")

    def __init__(self, request_id: str, keystroke: Keystroke | None, spared: str | None = None) -> None:
        """keystroke: None for a request that cannot be superseded. spared: an older request that this one does not
        supersede."""
        self.request_id = request_id
        self.keystroke = keystroke
        self.lineage = b""
        """Digest of its keystroke's lineage, set at registration: it is costly for long texts."""
        self.spared = spared
        self.by: str | None = None
        """The newer request's id; None before there is one."""
        self.since_s: float | None = None
        """The time when the newer request arrived, by `time.perf_counter`."""
        self.ended = asyncio.Event()
        """Set when the request has released all its resources."""
        self._task: asyncio.Task[Any] | None = None
        self._fired = False

    def supersede(self, by: str) -> None:
        """End this request for a newer keystroke, whose task calls this method; only the first call counts."""
        if self.by is not None:
            return
        self.by, self.since_s = by, time.perf_counter()
        if self._task is not None:
            self._fired = True
            self._task.cancel()

    async def __aenter__(self) -> None:
        if self.by is not None:
            raise Superseded(self.by)
        self._task = asyncio.current_task()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if not self._fired:
            return
        self._fired = False
        if kind is asyncio.CancelledError:
            if task.uncancel() == 0:
                assert self.by is not None
                raise Superseded(self.by) from None
            return
        # the block ended before the cancellation arrived, which the next wait would raise (until Python 3.13)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if task.uncancel() > 0:  # another caller cancels it too: its next wait raises that, and can clean up
                task.uncancel()
                task.cancel()
        else:
            task.uncancel()
