"""Who waits for a password's hash, and who is next: those who were here before and strangers by turns, and of each
whoever has had least. One per gateway process.

A hash costs a core for a tenth of a second, so somebody always waits while strangers try. Whose attempts are many wait
for themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from contracts.errors import ServiceError
from gateway.admin.turns import Place, Turns
from gateway.sessions.token import SessionToken

MOST_WAITING = 512
"""In each of the lines: a minute of hashes, of as many networks."""
RECENT_S = 86_400.0
"""How long it counts that somebody signed in from a network, or tried in vain."""
MOST_REMEMBERED = 10_000
RETURNING, STRANGERS = "returning", "strangers"
ValueT = TypeVar("ValueT")


class LineFull(ServiceError):
    """Too many wait for a hash; nobody has looked at the password."""

    def __init__(self) -> None:
        super().__init__("Too many people are signing in at this moment; try again.", retry_after_s=2)


class SignInLine:
    """So many at once; the others wait."""

    def __init__(self, at_once: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once = at_once
        self._clock = clock
        self._running = 0
        self._turns: Turns[asyncio.Future[None]] = Turns()
        self._succeeded: dict[str, float] = {}
        """When somebody signed in from a network, the oldest first."""
        self._tried: dict[str, tuple[int, float]] = {}
        """How many hashes a network or session has had in vain, and when the last was; the oldest first."""

    def place(self, token: SessionToken | None, network: str) -> Place:
        """Where an attempt waits. token: of the session it came with, even one that has ended: it was made here."""
        if token is not None:
            return Place(RETURNING, token.hash.hex())
        is_recent = self._clock() - self._succeeded.get(network, -RECENT_S) < RECENT_S
        return Place(RETURNING if is_recent else STRANGERS, network)

    def succeeded(self, place: Place, network: str) -> None:
        """Somebody has signed in from there. place: where they waited."""
        self._tried.pop(place.member, None)
        _put(self._succeeded, network, self._clock())

    async def turn(self, place: Place) -> None:
        """Return when it is this place's turn; `done` is to follow. Raises LineFull."""
        if self._running < self._at_once:
            self._running += 1
        else:
            await self._wait(place)
        _put(self._tried, place.member, (self._had(place) + 1, self._clock()))

    async def _wait(self, place: Place) -> None:
        self._make_room(place)
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(place, turn)
        try:
            await turn
        except asyncio.CancelledError:
            is_given = turn.done() and not turn.cancelled() and turn.exception() is None
            if is_given:  # at the same moment
                self.done()
            else:
                self._turns.remove(place, turn)
            raise

    def done(self) -> None:
        """The turn has ended, and the next begins."""
        self._running -= 1
        while self._running < self._at_once and (following := self._turns.take(had=self._had)) is not None:
            _, turn = following
            if not turn.done():
                self._running += 1
                turn.set_result(None)

    def end(self) -> None:
        """Nobody has a turn any more."""
        while (following := self._turns.take()) is not None:
            _, turn = following
            if not turn.done():
                turn.set_exception(ServiceError("This instance is shutting down; try again.", retry_after_s=1))

    def _had(self, place: Place) -> int:
        count, last_s = self._tried.get(place.member, (0, -RECENT_S))
        return count if self._clock() - last_s < RECENT_S else 0

    def _make_room(self, place: Place) -> None:
        """In a full line the newest attempt of who has most gives way, unless that is whose this one is."""
        if self._turns.in_line(place.line) < MOST_WAITING:
            return
        longest = self._turns.last_of_longest(place.line)
        if longest is None or self._turns.waiting(longest[0]) <= self._turns.waiting(place) + 1:
            raise LineFull
        self._turns.remove(*longest)
        if not longest[1].done():
            longest[1].set_exception(LineFull())


def _put(remembered: dict[str, ValueT], network: str, value: ValueT) -> None:
    """As the newest; the oldest is forgotten where there are too many."""
    remembered.pop(network, None)
    remembered[network] = value
    if len(remembered) > MOST_REMEMBERED:
        del remembered[next(iter(remembered))]
