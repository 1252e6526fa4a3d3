"""The keystrokes in flight at this gateway: a newer one supersedes the older ones of its lineage.

What came to another gateway is told to `elsewhere`, and heard from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol

from gateway.supersession.in_flight_request import InFlightRequest
from gateway.supersession.lineage import Digests, Keystroke, few_typed, near


class Elsewhere(Protocol):
    """The other gateways (`gateway.supersession.other_gateways.OtherGateways`)."""

    def announce(self, request: InFlightRequest, keystroke: Keystroke, lineage: bytes) -> None:
        """Supersede what was typed there. Never waits and never raises; without a way to them nothing happens."""
        ...


class Supersession:
    """One per gateway. elsewhere: None where there is one gateway only."""

    def __init__(self, digests: Digests, elsewhere: Elsewhere | None = None) -> None:
        self._digests = digests
        self._elsewhere = elsewhere
        self._in_flight: dict[bytes, dict[str, InFlightRequest]] = {}
        """By lineage, then by request id, oldest first."""

    def __len__(self) -> int:
        return sum(map(len, self._in_flight.values()))

    @contextlib.contextmanager
    def registered(
        self, request_id: str, keystroke: Keystroke | None, spared: str | None = None
    ) -> Iterator[InFlightRequest]:
        """Around all that is done for one request. Ends the older ones that `keystroke` was typed on; None: the
        request neither supersedes nor is superseded. spared: the older one whose answer this one shares."""
        request = InFlightRequest(request_id, keystroke)
        if keystroke is None:
            yield request
            return
        lineage = self._digests.lineage(keystroke)
        siblings = self._in_flight.setdefault(lineage, {})
        for older in siblings.values():
            if older.request_id == spared or older.keystroke is None:
                continue
            if near(older.keystroke.prefix, keystroke.prefix):  # all else is equal: they are of one lineage
                older.supersede(request_id)
                if older.by == request_id:
                    request.others.append(older)
        siblings[request_id] = request
        if self._elsewhere is not None:
            self._elsewhere.announce(request, keystroke, lineage)
        try:
            yield request
        finally:
            request.ended.set()
            request.others.clear()
            del siblings[request_id]
            if not siblings:
                del self._in_flight[lineage]

    def told(self, lineage: bytes, older_id: str, newer_id: str, newer_length: int, common: bytes) -> None:
        """Another gateway has a newer keystroke. newer_length: of its prefix. common: the digest of as much of that as
        the shorter of both prefixes has. Judged anew: what the text here says counts."""
        older = self._in_flight.get(lineage, {}).get(older_id)
        if older is None or older.keystroke is None or not few_typed(len(older.keystroke.prefix), newer_length):
            return
        if self._digests.prefix(older.keystroke, newer_length) == common:
            older.supersede(newer_id)
