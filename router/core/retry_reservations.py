"""Sets the time at which a refused client may return, and reserves its slot for then.

The pool's time for prompts is booked like a calendar, in which a part, `PART`, is kept for clients that return. A
refused client's prompt is booked after the time that is booked already, and its Retry-After is the end of its own
booking. A client that returns no earlier, with the same prompt, is neither held back nor shed for others. Nothing is
booked beyond `HORIZON_S`: a client that gets that time returns as a new one.
"""

from __future__ import annotations

from collections import OrderedDict

from contracts.lease import LeaseRequest

PART = 0.3
HORIZON_S = 60.0
SHORTEST_S = 0.1
VALID_S = 10.0
"""Time for which a reservation is kept after the announced time."""
LIMIT = 4_096
"""Most reservations that are kept; the oldest is dropped first."""

Key = tuple[str, str, int, bytes]


def key_of(ask: LeaseRequest) -> Key:
    """Key of a repeated request, from its prompt, because the next attempt has another id."""
    return ask.organization_id, ask.model, ask.prompt_tokens, ask.prefix_hashes[-16:]


class RetryReservations:
    """Reservations of one pool for refused requests that may be retried."""

    def __init__(self) -> None:
        self._booked_until = 0.0
        self._places: OrderedDict[Key, float] = OrderedDict()
        """The time at which each request may return."""

    def __len__(self) -> int:
        return len(self._places)

    def book(
        self, ask: LeaseRequest, work_s: float, rate: float, drained_in_s: float, now: float
    ) -> tuple[float, bool]:
        """The Retry-After of a refused client, in seconds from now, and whether its slot is reserved.

        work_s: prefill of its prompt. rate: seconds of prefill that the pool does per second. drained_in_s: seconds
        until the pool has done its granted work.
        """
        at = max(self._booked_until, now + max(drained_in_s, SHORTEST_S)) + work_s / (rate * PART)
        if at - now > HORIZON_S:
            return HORIZON_S, False
        self._booked_until = at
        self._places[key_of(ask)] = at
        self._places.move_to_end(key_of(ask))
        while len(self._places) > LIMIT or next(iter(self._places.values())) < now - VALID_S:
            self._places.popitem(last=False)
        return at - now, True

    def claim(self, ask: LeaseRequest, now: float) -> bool:
        """Whether the client returned at its announced time. A reservation can be claimed once."""
        if not self._places:
            return False
        key = key_of(ask)
        at = self._places.get(key)
        if at is None or now < at:
            return False
        del self._places[key]
        return now <= at + VALID_S
