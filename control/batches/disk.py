"""Blocking work on files, in threads of its own: a disk that hangs holds up no event loop, and none of the threads that
the ledger shares with others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

THREADS = 8
TIMEOUT_S = 30.0
"""Longest wait for one piece of work, and for a thread."""

ResultT = TypeVar("ResultT")


class Disk:
    """Its threads begin with the first work."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "slipstream-files")

    async def do(self, work: Callable[..., ResultT], *values: Any, **named: Any) -> ResultT:
        """Call `work`. Raises what it raises, and OSError after `TIMEOUT_S`, when its thread may still be busy."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.do_all(work, *values, **named)
        except TimeoutError:
            raise OSError(f"the disk did not finish within {TIMEOUT_S:g} s") from None

    async def do_all(self, work: Callable[..., ResultT], *values: Any, **named: Any) -> ResultT:
        """Call `work`, which takes as long as its file is large. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *values, **named))
