"""Prints the progress of `up`, one line per step with its duration."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from engines.layers.native.compiling import COMPILING
from infra.local.log_file import last_line

Result = TypeVar("Result")


class Progress:
    """Prints to standard error, so that standard output has only the final block."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        if not self._quiet:
            print(f"  {text}", file=sys.stderr, flush=True)

    async def step(
        self, name: str, done: str, work: Awaitable[Result], cpu_s: Callable[[], float | None] = lambda: None
    ) -> Result:
        """Await `work`, then print that `name` is `done`, with the elapsed time and the step's own CPU time: steps run
        concurrently, so the elapsed time includes other steps' work."""
        started_at = time.monotonic()
        result = await work
        own = cpu_s()
        used = "" if own is None else f", {own:.1f} s of CPU time"
        self.say(f"{name:<24}{done:<10}{time.monotonic() - started_at:6.1f} s{used}")
        return result


def is_compiling(log: Path) -> bool:
    """Whether the engine that writes this log compiles its kernels."""
    return COMPILING in last_line(log)


async def compiles(log: Path) -> None:
    """Return once the engine that writes this log compiles its kernels."""
    while not is_compiling(log):  # noqa: ASYNC110  another process has no event to wait for
        await asyncio.sleep(0.5)
