"""The keystrokes in flight at this gateway: a newer one supersedes the older ones of its lineage.

`elsewhere` exchanges them with other gateways.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Protocol

from gateway.supersession.in_flight_request import InFlightRequest
from gateway.supersession.lineage import Digests, Keystroke, few_typed, near

LOOKED_AT = 16
"""Requests of one lineage, newest first, the judged one among them: each costs a comparison of texts, on the event
loop. Who types has one or two in flight; what a burst leaves beyond these runs to its end."""


class Elsewhere(Protocol):
    """The other gateways (`gateway.supersession.other_gateways.OtherGateways`)."""

    def announce(self, request: InFlightRequest, keystroke: Keystroke, lineage: bytes) -> None:
        """Supersede older keystrokes at other gateways. Never waits and never raises; without a connection it has no
        effect."""
        ...


class Supersession:
    """One per gateway. elsewhere: None with a single gateway."""

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
        """Register one request for the duration of the block; until `supersede_older` it ends no other. keystroke: None
        for a request that neither supersedes nor is superseded. spared: the older one whose response this one
        shares."""
        request = InFlightRequest(request_id, keystroke, spared)
        if keystroke is None:
            yield request
            return
        request.lineage = self._digests.lineage(keystroke)
        siblings = self._in_flight.setdefault(request.lineage, {})
        siblings[request_id] = request
        try:
            yield request
        finally:
            request.ended.set()
            del siblings[request_id]
            if not siblings:
                del self._in_flight[request.lineage]

    def supersede_older(self, request: InFlightRequest) -> None:
        """A registered request is about to be served: end the older keystrokes of its lineage, here and elsewhere. Not
        earlier: a refused keystroke must end no other, and must not be the newest record elsewhere."""
        if request.keystroke is None or request.by is not None:  # a newer one was faster, and ends the same
            return
        for older in self._older(request):
            older.supersede(request.request_id)
        if self._elsewhere is not None:
            self._elsewhere.announce(request, request.keystroke, request.lineage)

    async def make_room(self, request: InFlightRequest, places: int, timeout_s: float) -> bool:
        """End the older ones here for a request that gets no slot while they run. False, and none is ended, if they are
        fewer than the missing `places`, or that is 0; False as well if they take too long."""
        older = self._older(request)
        if not 0 < places <= len(older):
            return False
        for one in older:
            one.supersede(request.request_id)
        try:
            async with asyncio.timeout(timeout_s):
                for one in older:
                    await one.ended.wait()
        except TimeoutError:
            return False
        return True

    def _older(self, request: InFlightRequest) -> list[InFlightRequest]:
        """The last `LOOKED_AT` older keystrokes of its lineage, newest first, and superseded followers of their
        recordings; without the one whose response it shares."""
        if (keystroke := request.keystroke) is None:
            return []
        newest = itertools.islice(reversed(self._in_flight[request.lineage].values()), LOOKED_AT)
        siblings = [(one, one.keystroke.prefix) for one in newest if one.keystroke is not None]
        at = next((at for at, (one, _) in enumerate(siblings) if one is request), len(siblings))
        # all else is equal: they are of one lineage
        typed_on = {one.request_id for one, prefix in siblings[at + 1 :] if near(prefix, keystroke.prefix)}
        found: list[InFlightRequest] = []
        spared = {one.spared for one, _ in siblings[: at + 1] if one.by is None}
        for one, prefix in siblings[at + 1 :]:  # whose answer one shares came before it
            typed_over = one.spared in typed_on and prefix != keystroke.prefix
            if one.request_id not in spared and (typed_over or one.request_id in typed_on):
                found.append(one)
            elif one.by is None:
                spared.add(one.spared)
        return found

    def told(self, lineage: bytes, older_id: str, newer_id: str, newer_length: int, common: bytes) -> None:
        """Another gateway has a newer keystroke. newer_length: of its prefix. common: the digest of its part that is as
        long as the shorter of both prefixes. This gateway decides by its own copy of the text."""
        older = self._in_flight.get(lineage, {}).get(older_id)
        if older is None or older.keystroke is None or not few_typed(len(older.keystroke.prefix), newer_length):
            return
        if self._digests.prefix(older.keystroke, newer_length) == common:
            older.supersede(newer_id)
