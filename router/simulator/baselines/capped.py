"""A cap on concurrent requests before any rule: smg's `--max-concurrent-requests` (off by default) and `--queue-size 0`
(docs/concepts/reliability/rate-limiting.md at 47fb5730): whoever finds no place is refused with 429 at once.

Restated as a cap on concurrency alone: the bucket's refill over time, by default as many tokens a second as its
capacity, would never bind at these loads. Its queue is first come first served, and makes short prompts wait for long
ones.
"""

from __future__ import annotations

from router.core.decisions import Decision
from router.core.events import Acquire, Event, Release
from router.simulator.baselines.rule import RuleRouter, refused


class Capped:
    """places: requests that may be with engines at a time."""

    def __init__(self, inner: RuleRouter, places: int) -> None:
        self._inner = inner
        self._free = places

    def handle(self, event: Event, now: float) -> list[Decision]:
        if isinstance(event, Release):
            self._free += 1
        elif isinstance(event, Acquire):
            if not self._free:
                return [refused(event, "as many requests as may be are under way")]
            self._free -= 1
        return self._inner.handle(event, now)

    def next_wakeup(self) -> float | None:
        """Nothing is held back."""
        return None

    def kv_event(self, replica_id: str, stored: bool, block: bytes) -> None:
        self._inner.kv_event(replica_id, stored, block)
