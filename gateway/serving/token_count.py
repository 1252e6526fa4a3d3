"""Serves endpoints that return the size of a prompt and generate nothing.

A request is authenticated, decoded and prepared like one that generates, so its count equals the reserved one and, if
the model has a tokenizer, the billed one. No limit counts it; it is paced like a refused request, and by length.
"""

from __future__ import annotations

from contracts.pooling import Task
from gateway.auth.scopes import Scope
from gateway.http.client_connection import ClientConnection
from gateway.http.loop_shares import REFUSAL_S, LoopShares
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint, InferenceServices, response_of
from gateway.serving.request import Arrival, InferenceRequest
from gateway.serving.request_spans import Ended
from gateway.wire.config import RequestConfig
from gateway.wire.format import AskedT, CountingFormat

TOKEN_S = 0.25e-6
"""Event loop time for each token of a conversation of many small messages, which is prepared on the loop."""
LONGEST_S = 0.05
"""Highest charge for a count, because an image without a tokenizer is estimated by its bytes."""


class TokenCountEndpoint(InferenceEndpoint[AskedT]):
    """One such endpoint. Parameters: see `InferenceEndpoint`."""

    generates = False

    def __init__(
        self,
        services: InferenceServices,
        wire_format: CountingFormat[AskedT],
        scope: Scope,
        max_body_bytes: int,
        config: RequestConfig,
        shares: LoopShares,
        room: BodyRoom,
        task: Task | None = Task.TEXT,
    ) -> None:
        super().__init__(services, wire_format, scope, max_body_bytes, config, shares, room, task=task)
        self._counting: CountingFormat[AskedT] = wire_format

    async def _answer(self, arrival: Arrival, connection: ClientConnection, request: InferenceRequest) -> Ended:
        cost_s = min(TOKEN_S * request.prepared.prompt_tokens, LONGEST_S)
        if not arrival.paid:
            cost_s += REFUSAL_S
        self._shares.unserved.spend(request.caller.organization_id, cost_s)
        response = response_of(arrival, connection)
        response.whole(200, self._counting.counted(request.prepared, arrival.request_id))
        self._services.metrics.answered(request.tier, arrival.endpoint, 200, "none")
        return Ended(200)
