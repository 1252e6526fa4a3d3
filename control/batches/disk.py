"""Runs blocking work on files in separate threads, so that a disk that hangs blocks neither an event loop nor the
threads that the ledger shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

THREADS = 8
TIMEOUT_S = 30.0
"""Longest time for one call, including the wait for a thread."""

ResultT = TypeVar("ResultT")


class Disk:
    """A pool of threads, which start with the first call."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "slipstream-files")

    async def do(self, work: Callable[..., ResultT], *values: Any, **named: Any) -> ResultT:
        """Call `work`. Raises its errors, and OSError after `TIMEOUT_S`; the thread may still be busy then."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.do_all(work, *values, **named)
        except TimeoutError:
            raise OSError(f"the disk did not finish within {TIMEOUT_S:g} s") from None

    async def do_all(self, work: Callable[..., ResultT], *values: Any, **named: Any) -> ResultT:
        """Call `work` without a time limit, as its duration depends on a file's size. Raises its errors."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *values, **named))
