"""Routes for editors' reports about completions, and for the checks of Tabby's plug-ins."""

from __future__ import annotations

import msgspec
from litestar import Controller, HttpMethod, Response, get, post, route
from litestar.di import NamedDependency
from litestar.params import FromPath, SkipValidation

from contracts.errors import InvalidField, NotFound
from contracts.generation import Tier
from gateway.auth.guard import KeyedRequest, keyed
from gateway.auth.scopes import Scope
from gateway.autocomplete.event import Event, completed_request, key_of
from gateway.autocomplete.event_type import EventType
from gateway.autocomplete.schema import CompletionEvent, TabbyEvent, TabbyEventType, TabbyHealth, TabbyServerSetting
from gateway.autocomplete.services import CompletionServices
from gateway.http.request_body import whole_body
from gateway.wire.decode import decode

EVENTS_PATH = "/v1/completions/{completion_id}/events"
TABBY_EVENTS_PATH, HEALTH_PATH, SETTING_PATH = "/v1/events", "/v1/health", "/v1beta/server_setting"
MAX_BODY_BYTES = 16_384
"""Limit for one event."""
_EVENT = msgspec.json.Decoder(CompletionEvent)
_TABBY_EVENT = msgspec.json.Decoder(TabbyEvent)
Parts = NamedDependency[SkipValidation[CompletionServices]]
"""The gateway's services, which have more fields: Litestar must not convert them."""


class CompletionEventsController(Controller):
    """Views, selections and dismissals. Each is queued at once and stored a little later.

    A caller cannot probe for completions: a report about another project's completion gets the same response and is
    never stored (docs/concepts/autocomplete-telemetry.md).
    """

    guards = (keyed(Scope.COMPLETIONS),)

    @post(EVENTS_PATH.replace("_id}", "_id:str}"), status_code=202)
    async def report(self, request: KeyedRequest, services: Parts, completion_id: FromPath[str]) -> Response[bytes]:
        request_id = completed_request(completion_id)
        if request_id is None:
            raise NotFound(
                f"There is no completion {completion_id[:100]!r}: send the `id` of an answer, or its x-request-id."
            )
        services.report_window.require(request_id)
        services.event_rate.take(request.user.caller)
        reported = decode(_EVENT, await _body(request), CompletionEvent)
        key = key_of(request_id, request.user.caller, reported.choice_index, reported.view_id, reported.type)
        organization_id = request.user.caller.organization_id
        services.completion_events.add(key, Event(organization_id, reported.characters, reported.elapsed_ms))
        return Response(b"", status_code=202)

    @post(TABBY_EVENTS_PATH, status_code=200)
    async def report_as_tabby(self, request: KeyedRequest, services: Parts) -> Response[bytes]:
        services.event_rate.take(request.user.caller)
        reported = decode(_TABBY_EVENT, await _body(request), TabbyEvent)
        request_id = completed_request(reported.completion_id)
        if request_id is None:
            raise InvalidField(
                "Invalid value for 'completion_id': it must be the `id` of an answer.", param="completion_id"
            )
        services.report_window.require(request_id)
        kind = EventType(reported.type.value)
        if reported.type is TabbyEventType.SELECT and request.query_params.get("select_kind") == "line":
            kind = EventType.SELECT_PART
        key = key_of(request_id, request.user.caller, reported.choice_index, reported.view_id or "", kind)
        elapsed_ms = None if reported.elapsed is None else round(reported.elapsed)
        services.completion_events.add(key, Event(request.user.caller.organization_id, elapsed_ms=elapsed_ms))
        return Response(b"", status_code=200)


class TabbyController(Controller):
    """Routes that Tabby's plug-ins call first."""

    guards = (keyed(Scope.COMPLETIONS),)

    @route(HEALTH_PATH, http_method=[HttpMethod.GET, HttpMethod.POST], status_code=200)
    async def health(self, request: KeyedRequest, services: Parts) -> Response[bytes]:
        models = (model for model in services.catalog.models if model.tier is Tier.AUTOCOMPLETE)
        return _json(TabbyHealth(model=next((model.name for model in models if request.user.may_use(model)), None)))

    @get(SETTING_PATH)
    async def server_setting(self) -> Response[bytes]:
        return _json(TabbyServerSetting())


async def _body(request: KeyedRequest) -> bytes:
    return await whole_body(dict(request.scope["headers"]), request.receive, MAX_BODY_BYTES, lambda _: None)


def _json(answer: msgspec.Struct) -> Response[bytes]:
    return Response(msgspec.json.encode(answer), media_type="application/json")
