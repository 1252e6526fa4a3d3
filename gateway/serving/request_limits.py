"""Reserves a request's upper bound in every limit of its caller, and settles its usage."""

from __future__ import annotations

from collections.abc import Awaitable

from gateway.limits.refusal import CounterReached, prompt_too_long
from gateway.limits.reservations import Reservation
from gateway.serving.collaborators import UsageLimiter
from gateway.serving.request import InferenceRequest
from gateway.serving.request_costs import RequestCosts
from gateway.supersession.in_flight_request import InFlightRequest
from gateway.supersession.supersession import Supersession


class RequestLimits:
    """Applies the limiter to requests. drain_s: how long a superseded request may take to free its slot."""

    def __init__(self, limiter: UsageLimiter, costs: RequestCosts, supersession: Supersession, drain_s: float) -> None:
        self._limiter = limiter
        self._costs = costs
        self._supersession = supersession
        self._drain_s = drain_s

    async def reserve(self, request: InferenceRequest, in_flight: InFlightRequest) -> Reservation:
        """Reserve the request's upper bound; the caller must settle it once. Raises LimitError or ServiceError.

        If the request lacks a slot that an older request of the same keystrokes holds, the older one is ended. A
        refusal by any other limit ends nothing, because the older response is the only one that its user gets.
        """
        if request.key.levels.capped:
            _require_short(request)
        bound = self._costs.most(request)
        arguments = request.request_id, request.caller, request.generation.tier, request.key.levels, bound
        try:
            return await self._limiter.reserve(*arguments)
        except CounterReached as refusal:
            if not await self._supersession.make_room(in_flight, refusal.concurrency_short, self._drain_s):
                raise
        return await self._limiter.reserve(*arguments)

    def settle(self, request: InferenceRequest, reservation: Reservation) -> Awaitable[None]:
        """Replace the reservation with the request's usage. Never raises."""
        return self._limiter.settle(reservation, request.used, refund_request=not request.ran)


def _require_short(request: InferenceRequest) -> None:
    """Raises RequestTooExpensive if the prompt is longer than a rule of the caller allows."""
    prepared, cap = request.prepared, request.key.levels.cap(request.generation.tier)
    if cap is not None and prepared.prompt_tokens > cap[0]:
        raise prompt_too_long(cap[1], cap[0], prepared.prompt_tokens, exact=prepared.exact)
