"""Routes of stored responses: read, listed, deleted."""

from __future__ import annotations

from typing import Protocol

import msgspec
from litestar import Controller, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, SkipValidation

from contracts.errors import InvalidField, UnsupportedField
from contracts.misfit import shortened
from gateway.auth.guard import KeyedRequest, keyed
from gateway.auth.scopes import Scope
from gateway.responses.store import ResponseStore

RESPONSE_PATH = "/v1/responses/{response_id}"
INPUT_ITEMS_PATH, CANCEL_PATH = f"{RESPONSE_PATH}/input_items", f"{RESPONSE_PATH}/cancel"
DEFAULT_ITEMS, MOST_ITEMS = 20, 100
ORDERS = ("asc", "desc")


class ResponseServices(Protocol):
    """The parts of a running gateway that stored responses need."""

    responses: ResponseStore


Parts = NamedDependency[SkipValidation[ResponseServices]]
"""The gateway's, which has more: Litestar must not convert it."""
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Named(msgspec.Struct):
    id: str


_decode_named = msgspec.json.Decoder(_Named).decode


def _route(path: str) -> str:
    return path.replace("{response_id}", "{response_id:str}")


class ResponsesController(Controller):
    """Stored responses of the key's project. Any other id is 404."""

    guards = (keyed(Scope.CHAT),)

    @get(_route(RESPONSE_PATH))
    async def retrieve(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """GET /v1/responses/{response_id}."""
        if request.query_params.get("stream", "false") != "false":
            raise UnsupportedField(
                "'stream' is not available for a stored response: leave it out to get the whole response.",
                param="stream",
            )
        stored = await services.responses.get(request.user.caller, response_id)
        return _json(stored.response)

    @delete(_route(RESPONSE_PATH), status_code=200)
    async def delete(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """DELETE /v1/responses/{response_id}."""
        await services.responses.delete(request.user.caller, response_id)
        return _json(msgspec.json.encode({"id": response_id, "object": "response", "deleted": True}))

    @get(_route(INPUT_ITEMS_PATH))
    async def input_items(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """GET /v1/responses/{response_id}/input_items."""
        limit, order, after = _page(request)
        stored = await services.responses.get(request.user.caller, response_id)
        items = [(_decode_named(raw).id, raw) for raw in _decode_items(stored.input)]
        if order == "desc":
            items.reverse()
        if after is not None:
            past = next((at + 1 for at, (name, _) in enumerate(items) if name == after), None)
            if past is None:
                raise InvalidField(f"'after' is {shortened(repr(after))}, which is no item of it.", param="after")
            items = items[past:]
        page = items[:limit]
        listed = {
            "object": "list",
            "data": [raw for _, raw in page],
            "first_id": page[0][0] if page else None,
            "last_id": page[-1][0] if page else None,
            "has_more": len(items) > limit,
        }
        return _json(msgspec.json.encode(listed))

    @post(_route(CANCEL_PATH), status_code=200)
    async def cancel(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """POST /v1/responses/{response_id}/cancel."""
        await services.responses.get(request.user.caller, response_id)
        raise InvalidField(
            "This response is complete. Only a response in the background can be cancelled; end another by closing "
            "its connection.",
            param="response_id",
        )


def _page(request: KeyedRequest) -> tuple[int, str, str | None]:
    """The query's limit, order and cursor. Raises InvalidField."""
    query = request.query_params
    limit, order = query.get("limit", str(DEFAULT_ITEMS)), query.get("order", "desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MOST_ITEMS):
        raise InvalidField(
            f"Invalid value for 'limit': {shortened(repr(limit))}. It must be from 1 to {MOST_ITEMS}.", param="limit"
        )
    if order not in ORDERS:
        raise InvalidField(
            f"Invalid value for 'order': {shortened(repr(order))}. It must be one of: {', '.join(ORDERS)}.",
            param="order",
        )
    return int(limit), order, query.get("after")


def _json(body: bytes) -> Response[bytes]:
    return Response(body, media_type="application/json")
