"""Routes of stored responses: read, listed, cancelled, deleted."""

from __future__ import annotations

import msgspec
from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath

from contracts.errors import InvalidField, UnsupportedField
from gateway.auth.guard import KeyedRequest, keyed
from gateway.auth.scopes import Scope
from gateway.responses.item_page import Parts, json_response, page_asked, page_of, route
from gateway.wire.responses.stored import cancelled, identified, is_background

RESPONSE_PATH = "/v1/responses/{response_id}"
INPUT_ITEMS_PATH, CANCEL_PATH = f"{RESPONSE_PATH}/input_items", f"{RESPONSE_PATH}/cancel"


class ResponsesController(Controller):
    """Stored responses of the key's project. Any other id is 404."""

    guards = (keyed(Scope.CHAT),)

    @get(route(RESPONSE_PATH))
    async def retrieve(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """GET /v1/responses/{response_id}."""
        if request.query_params.get("stream", "false") != "false":
            raise UnsupportedField(
                "'stream' is not available for a stored response: leave it out to get the whole response.",
                param="stream",
            )
        stored = await services.responses.get(request.user.caller, response_id)
        return json_response(stored.response)

    @delete(route(RESPONSE_PATH), status_code=200)
    async def delete(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """DELETE /v1/responses/{response_id}."""
        await services.responses.delete(request.user.caller, response_id)
        return json_response(msgspec.json.encode({"id": response_id, "object": "response", "deleted": True}))

    @get(route(INPUT_ITEMS_PATH))
    async def input_items(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """GET /v1/responses/{response_id}/input_items."""
        limit, order, after = page_asked(request)
        stored = await services.responses.get(request.user.caller, response_id)
        return json_response(page_of(identified(stored.input), limit, order, after))

    @post(route(CANCEL_PATH), status_code=200)
    async def cancel(self, request: KeyedRequest, services: Parts, response_id: FromPath[str]) -> Response[bytes]:
        """POST /v1/responses/{response_id}/cancel."""
        response = await services.background.cancel(request.user.caller, response_id, cancelled)
        if not is_background(response):
            raise InvalidField(
                "Only responses that were created with 'background': true can be cancelled. To end another running "
                "response, close its connection.",
                param="response_id",
            )
        return json_response(response)
