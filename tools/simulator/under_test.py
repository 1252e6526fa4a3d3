"""What the simulator needs from a router: the interface of `router.core.dispatcher.Dispatcher`, and nothing more."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from router.core.decisions import Decision
from router.core.events import Event


class RouterUnderTest(Protocol):
    """Events in, decisions out."""

    def handle(self, event: Event, now: float) -> list[Decision]:
        """Take in one event; what is to be done about it, in order."""
        ...

    def next_wakeup(self) -> float | None:
        """When a Tick is due if nothing else happens; None: never."""
        ...


@runtime_checkable
class KvListener(Protocol):
    """A router that follows the engines' KV events besides."""

    def kv_event(self, replica_id: str, stored: bool, block: bytes) -> None:
        """A block was stored in, or removed from, a replica's cache."""
        ...
