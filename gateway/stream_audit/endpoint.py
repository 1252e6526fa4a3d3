"""`GET /v1/stream-audit`: checks key and parameters, takes a slot and one request of the limits, and sends the stream.

It is a separate ASGI application, like inference endpoints, and writes with the same `ResponseWriter` and headers, so
that measurements of its stream apply to theirs.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

from contracts.errors import InternalError, SlipstreamError
from contracts.generation import Tier
from contracts.phases import Phase
from contracts.stream_audit import WATCHED_HEADERS, Opening
from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.http.loop_shares import REFUSAL_S, LoopShares
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.limits.cost import Cost
from gateway.limits.refusal import CounterReached
from gateway.serving.collaborators import UsageLimiter
from gateway.serving.endpoint import InferenceServices
from gateway.serving.request import Arrival
from gateway.stream_audit.asked import asked_of
from gateway.stream_audit.config import StreamAuditConfig
from gateway.stream_audit.places import Places
from gateway.stream_audit.stream import FINISH
from gateway.stream_audit.stream import send as send_stream
from gateway.wire.format import WireFormat

NOTHING = Cost()
"""An audit uses no tokens; it counts as one request and as one running request."""

logger = logging.getLogger(__name__)


class StreamAudits:
    """Shared state of one gateway's audits."""

    def __init__(self, limiter: UsageLimiter, config: StreamAuditConfig) -> None:
        self.limiter = limiter
        self.config = config
        self.places = Places(config)
        self.instance = secrets.token_hex(4)


class StreamAuditEndpoint:
    """The endpoint. wire_format: has the stream's headers and errors. draining: whether this instance is draining."""

    def __init__(
        self,
        services: InferenceServices,
        audits: StreamAudits,
        wire_format: WireFormat[Any],
        shares: LoopShares,
        draining: Callable[[], bool],
    ) -> None:
        self._services = services
        self._audits = audits
        self._format = wire_format
        self._shares = shares
        self._draining = draining

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request on its connection; `receive` and `send` are not used."""
        arrival = Arrival(self._format, dict(scope["headers"]))
        connection: ClientConnection = scope.pop(SCOPE_KEY)  # removed to avoid a cycle, as in InferenceEndpoint
        response = ResponseWriter(connection, self._format, arrival.request_id)
        metrics = self._services.metrics
        try:
            async with ClientWatch(connection):
                await self._serve(arrival, scope, connection, response)
        except ClientGone:
            metrics.answered("none", arrival.endpoint, 499, "client_gone")
        except SlipstreamError as error:
            status = response.status or self._format.error_status(error)
            self._services.refused(arrival, error, status)
            response.fail(error, self._format.rate_headers(error.state) if isinstance(error, CounterReached) else None)
        except Exception:
            logger.exception("request %s failed", arrival.request_id)
            response.fail(InternalError(f"Internal error. Quote request {arrival.request_id} when you report it."))
        else:
            metrics.answered("none", arrival.endpoint, response.status, "none")

    async def _serve(
        self, arrival: Arrival, scope: Any, connection: ClientConnection, response: ResponseWriter
    ) -> None:
        key = await authenticate(self._format.authorization(arrival.headers), self._services.keyring)
        audits, organization_id = self._audits, key.caller.organization_id
        connection.serve(organization_id)
        try:
            await self._shares.turn(organization_id)
            asked = asked_of(scope["query_string"], audits.config)
            arrival.clock.end(Phase.AUTH)
            with audits.places.place(organization_id, key.caller.key_id, asked.duration_s):
                async with self._reserved(arrival, key, response):
                    connection.reserved()
                    opening = self._opening(arrival, scope["http_version"], connection.number, response)
                    response.start_stream()
                    await send_stream(asked, response, opening, self._draining)
            response.end_stream(FINISH)  # a client that has the whole response finds its slot free
        except SlipstreamError as error:
            self._shares.spend(organization_id, REFUSAL_S)
            error.caller = key.caller
            raise

    @contextlib.asynccontextmanager
    async def _reserved(self, arrival: Arrival, key: KeyRecord, response: ResponseWriter) -> AsyncIterator[None]:
        """Reserve one request of the key's limits, and refund it if no stream began."""
        limiter = self._audits.limiter
        tier = Tier.CHAT if key.tiers is None or Tier.CHAT in key.tiers else Tier.AUTOCOMPLETE
        reservation = await limiter.reserve(arrival.request_id, key.caller, tier, key.levels, NOTHING)
        try:
            if reservation.state is not None:
                response.headers.extend(self._format.rate_headers(reservation.state))
            arrival.clock.end(Phase.LIMIT)
            response.headers.append(server_timing(arrival.clock))
            yield
        finally:
            await limiter.settle(reservation, NOTHING, refund_request=not response.started)

    def _opening(self, arrival: Arrival, version: str, number: int, response: ResponseWriter) -> Opening:
        """The first event's opening. version: HTTP's. number: the request's, on its connection."""
        headers, audits = arrival.headers, self._audits
        options = headers.get(b"connection", b"").lower()
        return Opening(
            request_id=arrival.request_id,
            instance=audits.instance,
            request_number=number,
            http_version=version,
            client_request_id=arrival.client_request_id,
            accept_encoding=headers.get(b"accept-encoding", b"").decode("latin-1")[:200],
            closes=b"close" in options or (version == "1.0" and b"keep-alive" not in options),
            request_headers=tuple(name for name in WATCHED_HEADERS if name.encode() in headers),
            headers={
                name.decode(): value.decode("latin-1") for name, value in self._format.stream_headers + response.headers
            },
        )
