"""Asks that wait for a place: one queue per pool, first come first served, bounded, each until its own deadline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from contracts.desired_state import Model
from contracts.lease import Ask

if TYPE_CHECKING:
    from router.core.fleet import PoolState
    from router.core.session import Session


class Waiting:
    """One ask that is being decided or waits."""

    __slots__ = ("ask", "asked_at", "deadline_at", "model", "pool", "session")

    def __init__(self, session: Session, ask: Ask, model: Model, asked_at: float) -> None:
        self.session = session
        self.ask = ask
        self.model = model
        self.asked_at = asked_at
        self.deadline_at = asked_at + ask.deadline_s
        self.pool: PoolState | None = None
        """In whose queue it stands; None: in none (any more), though the deadline heap may still hold it."""

    def again(self, model: Model) -> Waiting:
        """The same ask under a new desired state, as old as it was."""
        return Waiting(self.session, self.ask, model, self.asked_at)


class PoolQueue:
    """The asks of one pool, in order of arrival."""

    def __init__(self) -> None:
        # by session too: lease ids are unique within a gateway, the router need not trust them to be beyond
        self._waiting: dict[tuple[str, str], Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        """In order; safe against removals while iterating."""
        return iter(list(self._waiting.values()))

    def add(self, waiting: Waiting) -> None:
        """Append."""
        self._waiting[waiting.session.gateway_id, waiting.ask.lease_id] = waiting

    def remove(self, waiting: Waiting) -> None:
        """Take out, wherever it stands."""
        del self._waiting[waiting.session.gateway_id, waiting.ask.lease_id]
