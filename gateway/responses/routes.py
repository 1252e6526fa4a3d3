"""Serves the routes that read, list, cancel and delete stored responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import msgspec
from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath

from contracts.dated_request_id import mint
from contracts.errors import InvalidField
from contracts.misfit import shortened
from gateway.auth.bearer import authenticate
from gateway.auth.guard import KeyedRequest, keyed
from gateway.auth.scopes import Scope
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.responses.item_page import Parts, json_response, page_asked, page_of, route
from gateway.responses.streaming import send, streamed
from gateway.wire.format import EVENT_STREAM
from gateway.wire.key_header import authorization_of
from gateway.wire.responses.stored import cancelled, identified, is_background

RESPONSE_PATH = "/v1/responses/{response_id}"
INPUT_ITEMS_PATH, CANCEL_PATH = f"{RESPONSE_PATH}/input_items", f"{RESPONSE_PATH}/cancel"

MAX_EVENTS = 2**31 - 2


class ResponsesController(Controller):
    """Stored responses of the key's project. Any other id is 404."""

    guards = (keyed(Scope.CHAT),)

    @get(route(RESPONSE_PATH))
    async def retrieve(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        stream, after = _stream_asked(request)
        caller = request.user.caller
        if not stream:
            return json_response((await services.responses.get(caller, response_id)).response)
        services.event_streams.require_room(caller.organization_id)
        await services.responses.require(caller, response_id)
        parts = services.event_streams, services.responses
        check = partial(authenticate, authorization_of(dict(request.scope["headers"])), services.keyring)
        events = streamed(*parts, caller, response_id, after, lambda: services.draining, check)
        return _EventResponse(events)

    @delete(route(RESPONSE_PATH), status_code=200)
    async def delete(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        await services.responses.delete(request.user.caller, response_id)
        return json_response(msgspec.json.encode({"id": response_id, "object": "response", "deleted": True}))

    @get(route(INPUT_ITEMS_PATH))
    async def input_items(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        limit, order, after = page_asked(request)
        stored = await services.responses.get(request.user.caller, response_id)
        return json_response(page_of(identified(stored.input), limit, order, after))

    @post(route(CANCEL_PATH), status_code=200)
    async def cancel(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        response = await services.background.cancel(request.user.caller, response_id, cancelled)
        if not is_background(response):
            raise InvalidField(
                "Only responses that were created with 'background': true can be cancelled. To end another running "
                "response, close its connection.",
                param="response_id",
            )
        return json_response(response)


class _EventResponse(Response[bytes]):
    """Sends events through the connection itself, which notices when the client leaves or reads nothing."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(b"")
        self._events = events

    def to_asgi_response(self, *_: Any, **__: Any) -> Any:
        """The ASGI application that sends them."""
        return self._serve

    async def _serve(self, scope: Any, receive: Any, _: Any) -> None:
        connection: ClientConnection = scope.pop(SCOPE_KEY)
        connection.start(200, [*EVENT_STREAM, (b"x-request-id", mint().encode())])
        await send(connection, self._events)


def _stream_asked(request: KeyedRequest) -> tuple[bool, int | None]:
    """Whether the query requests a stream, and the number of the event that it follows. Raises InvalidField."""
    stream, after = request.query_params.get("stream", "false"), request.query_params.get("starting_after")
    if stream not in ("true", "false"):
        raise InvalidField(
            f"Invalid value for 'stream': {shortened(repr(stream))}. It must be true or false.", param="stream"
        )
    if after is None:
        return stream == "true", None
    if stream == "false":
        raise InvalidField("'starting_after' needs 'stream=true': only a stream has events.", param="starting_after")
    if not (after.isascii() and after.isdigit() and len(after) < 11 and int(after) <= MAX_EVENTS):
        raise InvalidField(
            f"Invalid value for 'starting_after': {shortened(repr(after))}. It must be the number of an event, from 0 "
            f"to {MAX_EVENTS}.",
            param="starting_after",
        )
    return True, int(after)
