"""Runs only the newest work for each document: newer work cancels older work."""

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
        """The work's result; None if newer work or `cancel` cancelled it. A cancelled caller cancels the work."""
        self.cancel(document)
        task = asyncio.create_task(work)
        self._running[document] = task
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            return None
        finally:
            if self._running.get(document) is task:
                del self._running[document]

    def cancel(self, document: str) -> None:
        """Cancel the document's running work, if there is any."""
        if (running := self._running.get(document)) is not None:
            running.cancel()
