"""What editors report about completions, and what Tabby's plug-ins ask before they report or complete anything."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Controller, HttpMethod, Request, Response, get, post, route
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, SkipValidation

from contracts.errors import InvalidField, NotFound
from contracts.generation import Tier
from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.autocomplete.event import Event, completed_request, key_of
from gateway.autocomplete.event_type import EventType
from gateway.autocomplete.schema import CompletionEvent, TabbyEvent, TabbyEventType, TabbyHealth, TabbyServerSetting
from gateway.autocomplete.services import CompletionServices
from gateway.http.client_connection import SCOPE_KEY
from gateway.http.request_body import whole_body
from gateway.wire.decode import decode
from gateway.wire.key_header import authorization_of

EVENTS_PATH = "/v1/completions/{completion_id}/events"
TABBY_EVENTS_PATH, HEALTH_PATH, SETTING_PATH = "/v1/events", "/v1/health", "/v1beta/server_setting"
MAX_BODY_BYTES = 16_384
"""Of an event."""
_EVENT = msgspec.json.Decoder(CompletionEvent)
_TABBY_EVENT = msgspec.json.Decoder(TabbyEvent)
KeyedRequest = Request[KeyRecord, Any, State]
"""Its `user` is the key that the guard found."""
Parts = SkipValidation[CompletionServices]
"""Those of the gateway, which has more."""
AnyConnection = ASGIConnection[Any, Any, Any, Any]


async def require_key(connection: AnyConnection, _: BaseRouteHandler) -> None:
    """The guard: whose key it is, and whether it is for completions, before the body is looked at."""
    services: CompletionServices = connection.app.state.services
    key = await authenticate(authorization_of(dict(connection.scope["headers"])), services.keyring)
    connection.scope[SCOPE_KEY].serve(key.caller.organization_id)  # type: ignore[literal-required]
    key.require_scope(Scope.COMPLETIONS)
    connection.scope["user"] = key


class CompletionEventsController(Controller):
    """Views, selections and dismissals. Each is noted at once and stored a little later.

    Nobody learns here which completions there are: a report about another project's is taken like any other, and joins
    nothing (docs/concepts/autocomplete-telemetry.md).
    """

    guards = (require_key,)

    @post(EVENTS_PATH.replace("_id}", "_id:str}"), status_code=202)
    async def report(self, request: KeyedRequest, services: Parts, completion_id: FromPath[str]) -> Response[bytes]:
        """POST /v1/completions/{completion_id}/events."""
        request_id = completed_request(completion_id)
        if request_id is None:
            raise NotFound(
                f"There is no completion {completion_id[:100]!r}: send the `id` of an answer, or its x-request-id."
            )
        services.report_window.require(request_id)
        services.event_rate.take(request.user.caller)
        told = decode(_EVENT, await _body(request), CompletionEvent)
        key = key_of(request_id, request.user.caller, told.choice_index, told.view_id, told.type)
        organization_id = request.user.caller.organization_id
        services.completion_events.add(key, Event(organization_id, told.characters, told.elapsed_ms))
        return Response(b"", status_code=202)

    @post(TABBY_EVENTS_PATH, status_code=200)
    async def report_as_tabby(self, request: KeyedRequest, services: Parts) -> Response[bytes]:
        """POST /v1/events."""
        services.event_rate.take(request.user.caller)
        told = decode(_TABBY_EVENT, await _body(request), TabbyEvent)
        request_id = completed_request(told.completion_id)
        if request_id is None:
            raise InvalidField(
                "Invalid value for 'completion_id': it must be the `id` of an answer.", param="completion_id"
            )
        services.report_window.require(request_id)
        kind = EventType(told.type.value)
        if told.type is TabbyEventType.SELECT and request.query_params.get("select_kind") == "line":
            kind = EventType.SELECT_PART
        key = key_of(request_id, request.user.caller, told.choice_index, told.view_id or "", kind)
        elapsed_ms = None if told.elapsed is None else round(told.elapsed)
        services.completion_events.add(key, Event(request.user.caller.organization_id, elapsed_ms=elapsed_ms))
        return Response(b"", status_code=200)


class TabbyController(Controller):
    """What Tabby's plug-ins ask first."""

    guards = (require_key,)

    @route(HEALTH_PATH, http_method=[HttpMethod.GET, HttpMethod.POST], status_code=200)
    async def health(self, request: KeyedRequest, services: Parts) -> Response[bytes]:
        """GET and POST /v1/health."""
        models = (model for model in services.catalog.models if model.tier is Tier.AUTOCOMPLETE)
        return _json(TabbyHealth(model=next((model.name for model in models if request.user.may_use(model)), None)))

    @get(SETTING_PATH)
    async def server_setting(self) -> Response[bytes]:
        """GET /v1beta/server_setting."""
        return _json(TabbyServerSetting())


async def _body(request: KeyedRequest) -> bytes:
    return await whole_body(dict(request.scope["headers"]), request.receive, MAX_BODY_BYTES, lambda _: None)


def _json(answer: msgspec.Struct) -> Response[bytes]:
    return Response(msgspec.json.encode(answer), media_type="application/json")
