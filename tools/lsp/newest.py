"""For each document the newest piece of work only: a newer one cancels the one before."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class Newest:
    """Work by document."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[Any]] = {}

    async def run(self, document: str, work: Coroutine[Any, Any, ResultT]) -> ResultT | None:
        """The work's result; None when it was given up here. Cancelled, it cancels the work."""
        self.cancel(document)
        task = asyncio.create_task(work)
        self._running[document] = task
        try:
            return await task
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and asking.cancelling():
                raise
            return None
        finally:
            if self._running.get(document) is task:
                del self._running[document]

    def cancel(self, document: str) -> None:
        """Give up what runs for it, if anything does."""
        if (running := self._running.get(document)) is not None:
            running.cancel()
