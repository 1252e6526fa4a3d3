"""Says what `up` is doing, one line per step, with the time each took."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


class Progress:
    """Prints to standard error, so that standard output holds the final block alone."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def say(self, text: str) -> None:
        if not self._quiet:
            print(f"  {text}", file=sys.stderr, flush=True)

    async def step(self, name: str, done: str, work: Awaitable[Result]) -> Result:
        """Await `work`, then say that `name` is `done` and how long it took."""
        started_at = time.monotonic()
        result = await work
        self.say(f"{name:<24}{done:<10}{time.monotonic() - started_at:6.1f} s")
        return result
