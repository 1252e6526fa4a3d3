"""An inference endpoint: who asks, and for what; `Exchange` does the rest.

An ASGI application of its own, so that the front door can come here at once; the routes lead here too.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from contracts.errors import BodyTooLarge, Draining, InternalError, InvalidJson, MissingKey, SlipstreamError
from contracts.generation import Caller
from contracts.phases import Phase, PhaseClock
from gateway.answer import Answer
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.call import Call, mint_request_id
from gateway.channel import SCOPE_KEY
from gateway.openai.prepare import Prepared, Target
from gateway.openai.schema import Common
from gateway.services import Services

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]
AskedT = TypeVar("AskedT", bound=Common)


class Inference(Generic[AskedT]):
    """One endpoint. decode: a body to what is asked. prepare: that to a Generation and its cost."""

    def __init__(
        self,
        services: Services,
        endpoint: str,
        decode: Callable[[bytes], AskedT],
        prepare: Callable[[AskedT, str, Caller, str, Target], Awaitable[Prepared]],
        max_body_bytes: int,
    ) -> None:
        self._services = services
        self._endpoint = endpoint
        self._scope = Scope.CHAT if endpoint == "chat" else Scope.COMPLETIONS
        self._decode = decode
        self._prepare = prepare
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Serve one request on its channel; `send` is not used."""
        clock, request_id, headers = PhaseClock(), mint_request_id(), dict(scope["headers"])
        answer = Answer(scope[SCOPE_KEY], [(b"x-request-id", request_id.encode())])
        asked_for: list[str] = []
        try:
            call = await self._begin(headers, receive, clock, request_id, asked_for)
        except SlipstreamError as error:
            model = asked_for[0] if asked_for else None
            self._services.refused(self._endpoint, error, request_id, _client_request_id(headers), model, clock)
            answer.fail(error)
        except Exception:
            logger.exception("request %s failed", request_id)
            answer.fail(InternalError(f"Internal error. Quote request {request_id} when you report it."))
        else:
            await self._services.exchange.run(call, scope[SCOPE_KEY], answer)

    async def _begin(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        clock: PhaseClock,
        request_id: str,
        asked_for: list[str],
    ) -> Call:
        """Steps 1 and 2 of a request. asked_for: is given the model's name as soon as it is known."""
        services = self._services
        key = await authenticate(headers.get(b"authorization", b""), services)
        try:
            key.require_scope(self._scope)
            asked = self._decode(await whole_body(headers, receive, self._max_body_bytes))
            asked_for.append(asked.model)
            target = services.fleet.find(asked.model)
            key.require_model(target.model)
            clock.end(Phase.AUTH)
            salt = services.salts.of(key.caller.organization_id)
            prepared = await self._prepare(asked, request_id, key.caller, salt, target)
        except SlipstreamError as error:
            error.caller = key.caller
            raise
        return Call(request_id, _client_request_id(headers), self._endpoint, key, target, prepared, clock)


async def authenticate(authorization: bytes, services: Services) -> KeyRecord:
    """The key of an `Authorization: Bearer` header. Raises AuthError, AuthUnavailable or Draining."""
    secret = bearer_secret(authorization.decode("latin-1"), services, "sk-slip-...")
    return services.keyring.cached(secret) or await services.keyring.identify(secret)


def bearer_secret(authorization: str, services: Services, example: str) -> str:
    """What an `Authorization: Bearer` header carries. example: for the error. Raises MissingKey, or Draining."""
    if services.draining:
        raise Draining("This instance is shutting down; try again.", retry_after_s=1)
    scheme, _, secret = authorization.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise MissingKey(f"No API key given. Send it as 'Authorization: Bearer {example}'.")
    return secret


async def whole_body(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int) -> bytes:
    """The request's body. Raises BodyTooLarge, and InvalidJson when the client left before it was complete: no fault of
    ours to log."""
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
        more = message["more_body"] and size <= max_bytes
    if size > max_bytes:
        raise BodyTooLarge(f"The request body is larger than {max_bytes} bytes.")
    return bytes(body)


def _client_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """The id the client chose, for its own bookkeeping; cut to what fits a log line."""
    given = headers.get(b"x-client-request-id") or headers.get(b"x-request-id")
    if not given:
        return None
    return "".join(character for character in given.decode("latin-1") if character.isprintable())[:128]
