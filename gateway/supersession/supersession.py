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
"""Limit of the newest requests of a lineage that are compared, including the judged one: each costs a comparison of
texts on the event loop. A user who types has one or two in flight; older requests of a burst run to their end."""


class Elsewhere(Protocol):
    """The other gateways (`gateway.supersession.other_gateways.OtherGateways`)."""

    def announce(self, request: InFlightRequest, keystroke: Keystroke, lineage: bytes) -> None:
        """Supersede older keystrokes at other gateways. Never waits and never raises; without a connection it has no
        effect."""
        ...


class Supersession:
    """The keystrokes of one gateway. elsewhere: None with a single gateway."""

    def __init__(self, digests: Digests, elsewhere: Elsewhere | None = None) -> None:
        self._digests = digests
        self._elsewhere = elsewhere
        self._in_flight: dict[bytes, dict[str, InFlightRequest]] = {}
        """Requests by lineage, then by request id, oldest first."""

    def __len__(self) -> int:
        return sum(map(len, self._in_flight.values()))

    @contextlib.contextmanager
    def registered(
        self, request_id: str, keystroke: Keystroke | None, spared: str | None = None
    ) -> Iterator[InFlightRequest]:
        """Register one request for the duration of the block; before `supersede_older`, it ends no other. keystroke:
        None for a request that neither supersedes nor is superseded. spared: the older one whose response it shares."""
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
        """End the older keystrokes of a registered request's lineage, here and elsewhere. Call it only when the request
        is about to be served: a refused keystroke must end no other, and must not be the newest record elsewhere."""
        if request.keystroke is None or request.by is not None:  # a newer request was faster and ends the same ones
            return
        for older in self._older(request):
            older.supersede(request.request_id)
        if self._elsewhere is not None:
            self._elsewhere.announce(request, request.keystroke, request.lineage)

    async def make_room(self, request: InFlightRequest, places: int, timeout_s: float) -> bool:
        """End the older keystrokes here for a request that gets no slot while they run. Returns False, and ends none,
        if they are fewer than the missing `places`, or if `places` is 0. Also returns False if they take too long."""
        older = self._older(request)
        if not 0 < places <= len(older):
            return False
        for each in older:
            each.supersede(request.request_id)
        try:
            async with asyncio.timeout(timeout_s):
                for each in older:
                    await each.ended.wait()
        except TimeoutError:
            return False
        return True

    def _older(self, request: InFlightRequest) -> list[InFlightRequest]:
        """The older keystrokes among the newest `LOOKED_AT` of its lineage, newest first, and superseded followers of
        their recordings; without the request whose response it shares."""
        if (keystroke := request.keystroke) is None:
            return []
        newest = itertools.islice(reversed(self._in_flight[request.lineage].values()), LOOKED_AT)
        siblings = [(sibling, sibling.keystroke.prefix) for sibling in newest if sibling.keystroke is not None]
        at = next((at for at, (sibling, _) in enumerate(siblings) if sibling is request), len(siblings))
        # everything else is equal within one lineage
        typed_on = {sibling.request_id for sibling, prefix in siblings[at + 1 :] if near(prefix, keystroke.prefix)}
        found: list[InFlightRequest] = []
        spared = {sibling.spared for sibling, _ in siblings[: at + 1] if sibling.by is None}
        for sibling, prefix in siblings[at + 1 :]:  # the request whose answer it shares came before it
            typed_over = sibling.spared in typed_on and prefix != keystroke.prefix
            if sibling.request_id not in spared and (typed_over or sibling.request_id in typed_on):
                found.append(sibling)
            elif sibling.by is None:
                spared.add(sibling.spared)
        return found

    def told(self, lineage: bytes, older_id: str, newer_id: str, newer_length: int, common: bytes) -> None:
        """Handle another gateway's newer keystroke. newer_length: the length of its prefix. common: the digest of the
        part that is as long as the shorter of both prefixes. This gateway decides by its own copy of the text."""
        older = self._in_flight.get(lineage, {}).get(older_id)
        if older is None or older.keystroke is None or not few_typed(len(older.keystroke.prefix), newer_length):
            return
        if self._digests.prefix(older.keystroke, newer_length) == common:
            older.supersede(newer_id)
