"""Who has a connection of the admin API, and who is next for one: organizations take turns. One per gateway process."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Protocol
from uuid import UUID

from contracts.errors import RateLimited, ServiceError, SlipstreamError
from gateway.admin.turns import Place, Turns

OPERATORS = Place("operators")
"""The operating organization, and what the gateway itself asks."""
STRANGERS = "strangers"
"""Whoever is not known yet: one line of all their networks, which take turns in it."""
MOST_KNOWN = 10_000
BUSY_S = 1.0


class Known(Protocol):
    """Somebody who was found in the database."""

    @property
    def organization_id(self) -> UUID:
        """Whose member or service account it is."""

    @property
    def operator(self) -> bool:
        """Whether that is the operating organization."""


def place_of(known: Known) -> Place:
    """Where somebody waits who is known."""
    return OPERATORS if known.operator else Place(str(known.organization_id))


def stranger(network: str) -> Place:
    """Where somebody waits of whom only the network is known."""
    return Place(STRANGERS, network)


class KnownPlaces:
    """In which line the holders of keys and sessions wait while theirs is looked up. It opens nothing."""

    def __init__(self) -> None:
        self._places: dict[bytes, Place] = {}
        """By hash of the secret, the least recently used first."""

    def find(self, secret_hash: bytes, network: str) -> Place:
        """Theirs, or a stranger's."""
        place = self._places.pop(secret_hash, None)
        if place is None:
            return stranger(network)
        self._places[secret_hash] = place
        return place

    def learn(self, secret_hash: bytes, known: Known) -> None:
        """Whose it is."""
        self._places.pop(secret_hash, None)
        self._places[secret_hash] = place_of(known)
        if len(self._places) > MOST_KNOWN:
            del self._places[next(iter(self._places))]


class ConnectionLine:
    """A line has half of the connections at most, and operators find one that nobody else is given."""

    def __init__(self, connections: int) -> None:
        """connections: of the pool."""
        self._all = connections
        self._each = max(1, connections // 2)
        self._others = max(1, connections - 1)
        self._taken: Counter[str] = Counter()
        self._turns: Turns[asyncio.Future[None]] = Turns()

    def refusal(self, place: Place) -> SlipstreamError:
        """For somebody whose turn did not come in time: whether others have the connections, or their own line."""
        if place.line in (OPERATORS.line, STRANGERS) or self._taken[place.line] < self._each:
            return ServiceError("The admin API is busy; try again.", retry_after_s=BUSY_S)
        return RateLimited(
            f"Your organization has {self._each} requests to the admin API under way at this gateway, which is all it "
            "may have at once, and too many more wait behind them. Send fewer at a time.",
            retry_after_s=BUSY_S,
        )

    @contextlib.asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """One of the connections for the block, when it is this place's turn."""
        if self._may(place.line):
            self._taken[place.line] += 1
        else:
            await self._wait(place)
        try:
            yield
        finally:
            self._give_back(place.line)

    async def _wait(self, place: Place) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(place, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._turns.remove(place, turn):  # it was given at the same moment
                self._give_back(place.line)
            raise

    def _may(self, line: str) -> bool:
        taken = self._taken.total()
        if taken >= self._all or self._taken[line] >= self._each:
            return False
        return line == OPERATORS.line or taken - self._taken[OPERATORS.line] < self._others

    def _give_back(self, line: str) -> None:
        self._taken[line] -= 1
        if not self._taken[line]:
            del self._taken[line]
        while (following := self._turns.take(self._may)) is not None:
            place, turn = following
            self._taken[place.line] += 1
            if not turn.done():
                turn.set_result(None)
