"""The interface that the simulator requires of a router: that of `router.core.dispatcher.Dispatcher`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from router.core.decisions import Decision
from router.core.events import Event


class RouterUnderTest(Protocol):
    """Events in, decisions out."""

    def handle(self, event: Event, now: float) -> list[Decision]:
        """Process one event. Returns the decisions, in order."""
        ...

    def next_wakeup(self) -> float | None:
        """When a Tick is due if nothing else happens; None if never."""
        ...


@runtime_checkable
class KvListener(Protocol):
    """A router that also follows the engines' KV events."""

    def kv_event(self, replica_id: str, stored: bool, block: bytes) -> None:
        """A block was stored in, or removed from, a replica's cache."""
        ...
