"""An inference endpoint: who asks, and for what; `RequestPipeline` does the rest.

An ASGI application of its own, so that the front door can come here at once; the routes lead here too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Generic

from contracts.errors import (
    AuthError,
    BodyTooLarge,
    Draining,
    InternalError,
    InvalidJson,
    MissingKey,
    PreparationTimeout,
    SlipstreamError,
)
from contracts.phases import Phase, PhaseClock
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.http.response import ResponseWriter
from gateway.metering.journal.request_id import mint
from gateway.services import Services
from gateway.serving.body_room import BodyRoom
from gateway.serving.loop_shares import LARGE_BYTES, REFUSAL_S, LoopShares
from gateway.serving.request import InferenceRequest
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.format import AskedT, WireFormat

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]


class InferenceEndpoint(Generic[AskedT]):
    """One endpoint. wire_format: what its clients speak. scope: what their keys must allow."""

    def __init__(
        self,
        services: Services,
        wire_format: WireFormat[AskedT],
        scope: Scope,
        max_body_bytes: int,
        config: RequestConfig,
        shares: LoopShares,
        room: BodyRoom,
    ) -> None:
        self._services = services
        self._format = wire_format
        self._scope = scope
        self._max_body_bytes = max_body_bytes
        self._config = config
        self._shares = shares
        self._room = room

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Serve one request on its channel; `send` is not used."""
        clock, request_id, headers = PhaseClock(), mint(), dict(scope["headers"])
        channel: ClientConnection = scope[SCOPE_KEY]
        answer = ResponseWriter(channel, self._format, request_id)
        asked_for: list[str] = []
        try:
            async with ClientWatch(channel):
                call = await self._begin(headers, receive, channel, clock, request_id, asked_for)
        except ClientGone:
            self._services.metrics.answered("none", self._format.name, 499, "client_gone")
        except SlipstreamError as error:
            model = asked_for[0] if asked_for else None
            status = self._format.error_status(error)
            self._services.refused(
                self._format.name, error, status, request_id, _client_request_id(headers), model, clock
            )
            answer.fail(error)
        except Exception:
            logger.exception("request %s failed", request_id)
            answer.fail(InternalError(f"Internal error. Quote request {request_id} when you report it."))
        else:
            await self._services.exchange.run(call, channel, answer)

    async def _begin(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        channel: ClientConnection,
        clock: PhaseClock,
        request_id: str,
        asked_for: list[str],
    ) -> InferenceRequest:
        """Steps 1 and 2 of a request. asked_for: is given the model's name as soon as it is known."""
        services = self._services
        key = await self._key(self._format.authorization(headers), channel.network)
        try:
            key.require_scope(self._scope)
            async with self._room_for(headers, key.caller.organization_id):
                body = await self._body(headers, receive, channel, key.caller.organization_id)
                async with self._deadline():
                    asked = await self._asked(body, key.caller.organization_id)
                    del body  # what was asked has it all once more
                    asked_for.append(asked.model)
                    target = services.fleet.find(asked.model)
                    key.require_model(target.model)
                    clock.end(Phase.AUTH)
                    salt = services.salts.of(key.caller.organization_id)
                    prepared = await self._format.prepare(asked, request_id, key.caller, salt, target)
        except SlipstreamError as error:
            self._shares.spend(key.caller.organization_id, REFUSAL_S)
            error.caller = key.caller
            raise
        return InferenceRequest(request_id, _client_request_id(headers), self._format, key, target, prepared, clock)

    async def _key(self, authorization: bytes, network: str) -> KeyRecord:
        """Who has no key is refused at the pace of the network it comes from: so many refusals from one would take the
        loop from everybody."""
        try:
            return await authenticate(authorization, self._services)
        except AuthError:
            if network:
                self._shares.spend(network, REFUSAL_S)
                await self._shares.turn(network)
            raise

    def _room_for(
        self, headers: Mapping[bytes, bytes], organization_id: str
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """Small bodies need none."""
        length = headers.get(b"content-length", b"")
        size_bytes = int(length) if length.isdigit() else self._max_body_bytes
        if size_bytes < LARGE_BYTES or size_bytes > self._max_body_bytes:
            return contextlib.nullcontext()
        return self._room.of(organization_id, size_bytes)

    async def _body(
        self, headers: Mapping[bytes, bytes], receive: Receive, channel: ClientConnection, organization_id: str
    ) -> bytes:
        """The body's bytes, their structure within bounds. Reading is charged to the organization's share of the event
        loop."""
        shares, feed, spent_s = self._shares, BodyShape(self._config).feed, 0.0
        await shares.turn(organization_id)

        def check(piece: bytes) -> None:
            nonlocal spent_s
            began_s = time.perf_counter()
            try:
                feed(piece)
            finally:
                spent_s += time.perf_counter() - began_s

        async def pause() -> None:
            nonlocal spent_s
            shares.spend(organization_id, spent_s)
            spent_s = 0.0
            await shares.turn(organization_id)

        body = await whole_body(headers, receive, self._max_body_bytes, check, pause)
        channel.listen()
        if len(body) >= LARGE_BYTES:
            shares.spend(organization_id, spent_s)
        return body

    async def _asked(self, body: bytes, organization_id: str) -> AskedT:
        """The decoded body; decoding a large one is charged likewise."""
        if len(body) < LARGE_BYTES:
            return self._format.decode(body)
        await self._shares.turn(organization_id)
        began_s = time.perf_counter()
        try:
            return self._format.decode(body)
        finally:
            self._shares.spend(organization_id, time.perf_counter() - began_s)

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        """Nothing is reserved yet, so that no limit of the caller's ends what takes too long here."""
        timeout_s = self._config.prepare_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError:
            raise PreparationTimeout(
                f"The prompt could not be counted within {timeout_s:g} s. Try again, or send a shorter one.",
                retry_after_s=1,
            ) from None


async def authenticate(authorization: bytes, services: Services) -> KeyRecord:
    """The key of an `Authorization: Bearer` header. Raises AuthError, AuthUnavailable or Draining."""
    secret = bearer_secret(authorization.decode("latin-1"), services, "sk-slip-...")
    return services.keyring.cached(secret) or await services.keyring.identify(secret)


def bearer_secret(authorization: str, services: Services, example: str) -> str:
    """What an `Authorization: Bearer` header carries. example: for the error. Raises MissingKey, or Draining."""
    if services.draining:
        raise Draining()
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise MissingKey(f"No API key given. Send it as 'Authorization: Bearer {example}'.")
    return secret


async def whole_body(
    headers: Mapping[bytes, bytes],
    receive: Receive,
    max_bytes: int,
    check: Callable[[bytes], None],
    pause: Callable[[], Awaitable[None]] | None = None,
) -> bytes:
    """The request's body. check: sees each piece as it arrives, and may refuse. pause: awaited between the pieces of a
    large one. Raises BodyTooLarge, and InvalidJson when the client left before it was complete: no fault of ours to
    log."""
    length = headers.get(b"content-length", b"")
    size = int(length) if length.isdigit() else 0
    body = bytearray()
    more = size <= max_bytes
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidJson("The request ended before its body was complete.")
        body += message["body"]
        size = len(body)
        if size <= max_bytes:
            check(message["body"])
        more = message["more_body"] and size <= max_bytes
        if more and pause is not None and size >= LARGE_BYTES:
            await pause()
    if size > max_bytes:
        raise BodyTooLarge(f"The request body is larger than {max_bytes} bytes.")
    return bytes(body)


def _client_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """The id the client chose, for its own bookkeeping; cut to what fits a log line."""
    given = headers.get(b"x-client-request-id") or headers.get(b"x-request-id")
    if not given:
        return None
    return "".join(character for character in given.decode("latin-1") if character.isprintable())[:128]
