"""When a refused client may come back, and that it then has its place.

The pool's time for prompts is booked like a calendar: a part of it, `PART`, is kept for those who return. Everyone who
is refused is told the end of what is booked, and their own prompt is booked behind it. Who comes back no earlier with
the same prompt is neither held back nor given up for others. Beyond `HORIZON_S` nothing is booked: whoever is told that
time comes back as a newcomer.
"""

from __future__ import annotations

from collections import OrderedDict

from contracts.lease import LeaseRequest

PART = 0.3
HORIZON_S = 60.0
SHORTEST_S = 0.1
VALID_S = 10.0
"""A place is kept for so long after the time told."""
LIMIT = 4_096
"""Places kept; the oldest is forgotten first."""

Key = tuple[str, str, int, bytes]


def key_of(ask: LeaseRequest) -> Key:
    """What a client sends again is known by its prompt, for the next attempt has another id."""
    return ask.organization_id, ask.model, ask.prompt_tokens, ask.prefix_hashes[-16:]


class RetryReservations:
    """Places that one pool keeps for requests it has asked to come again."""

    def __init__(self) -> None:
        self._booked_until = 0.0
        self._places: OrderedDict[Key, float] = OrderedDict()
        """When each may come."""

    def __len__(self) -> int:
        return len(self._places)

    def book(
        self, ask: LeaseRequest, work_s: float, rate: float, drained_in_s: float, now: float
    ) -> tuple[float, bool]:
        """What to tell a client that is refused, in seconds from now, and whether its place is kept.

        work_s: prefill of its prompt. rate: seconds of prefill per second the pool does. drained_in_s: until it has
        done what it was given.
        """
        at = max(self._booked_until, now + max(drained_in_s, SHORTEST_S)) + work_s / (rate * PART)
        if at - now > HORIZON_S:
            return HORIZON_S, False
        self._booked_until = at
        self._places[key_of(ask)] = at
        while len(self._places) > LIMIT or next(iter(self._places.values())) < now - VALID_S:
            self._places.popitem(last=False)
        return at - now, True

    def claim(self, ask: LeaseRequest, now: float) -> bool:
        """It was told to come now, and has. A place is claimed once."""
        if not self._places:
            return False
        key = key_of(ask)
        at = self._places.get(key)
        if at is None or now < at:
            return False
        del self._places[key]
        return now <= at + VALID_S
