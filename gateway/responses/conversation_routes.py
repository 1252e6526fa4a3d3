"""Serves the routes of conversations and their items."""

from __future__ import annotations

import msgspec
from litestar import Controller, Response, delete, get, post
from litestar.params import FromPath

from contracts.dated_request_id import PREFIX, mint
from contracts.errors import InvalidField
from gateway.auth.guard import KeyedRequest, keyed
from gateway.auth.scopes import Scope
from gateway.http.request_body import whole_body
from gateway.responses.conversations import Conversation, Grown, StoredItem, no_item
from gateway.responses.item_page import Parts, json_response, page_asked, page_of, route
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.decode import decode
from gateway.wire.responses.decode import RequestDecoder
from gateway.wire.responses.schema import ChangedConversation, Item, ItemReference, NewConversation, NewItems
from gateway.wire.responses.stored import identified, input_json

CONVERSATIONS_PATH = "/v1/conversations"
CONVERSATION_PATH = f"{CONVERSATIONS_PATH}/{{conversation_id}}"
ITEMS_PATH = f"{CONVERSATION_PATH}/items"
ITEM_PATH = f"{ITEMS_PATH}/{{item_id}}"
MAX_BODY_BYTES = 4 * 1024 * 1024
"""Limit of one request's body."""
_NEW, _ITEMS = RequestDecoder(NewConversation), RequestDecoder(NewItems)
_CHANGED = msgspec.json.Decoder(ChangedConversation)


class ConversationsController(Controller):
    """Conversations of the key's project. Any other id is 404."""

    guards = (keyed(Scope.CHAT),)

    @post(CONVERSATIONS_PATH, status_code=200)
    async def create(self, request: KeyedRequest, services: Parts) -> Response[bytes]:
        body = _NEW.decode(await _body(request) or b"{}")
        conversation_id = f"conv_{mint().removeprefix(PREFIX)}"
        grown = Grown(conversation_id, _stored(body.items or []))
        metadata = msgspec.json.encode(body.metadata or {})
        return _told(await services.conversations.create(request.user.caller, metadata, grown))

    @get(route(CONVERSATION_PATH))
    async def retrieve(self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str]) -> Response[bytes]:
        return _told(await services.conversations.get(request.user.caller, conversation_id))

    @post(route(CONVERSATION_PATH), status_code=200)
    async def change(self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str]) -> Response[bytes]:
        body = decode(_CHANGED, await _body(request), ChangedConversation)
        metadata = msgspec.json.encode(body.metadata or {})
        return _told(await services.conversations.change(request.user.caller, conversation_id, metadata))

    @delete(route(CONVERSATION_PATH), status_code=200)
    async def forget(self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str]) -> Response[bytes]:
        await services.conversations.delete(request.user.caller, conversation_id)
        deleted = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
        return json_response(msgspec.json.encode(deleted))

    @get(route(ITEMS_PATH))
    async def items(self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str]) -> Response[bytes]:
        page = page_asked(request)
        return json_response(page_of(await services.conversations.items(request.user.caller, conversation_id), *page))

    @post(route(ITEMS_PATH), status_code=200)
    async def add(self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str]) -> Response[bytes]:
        items = _stored(_ITEMS.decode(await _body(request)).items)
        await services.conversations.add(request.user.caller, Grown(conversation_id, items))
        return json_response(page_of(items, len(items), "asc", None))

    @get(route(ITEM_PATH))
    async def item(
        self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str], item_id: FromPath[str]
    ) -> Response[bytes]:
        items = await services.conversations.items(request.user.caller, conversation_id)
        found = next((item.item for item in items if item.id == item_id), None)
        if found is None:
            raise no_item(item_id)
        return json_response(found)

    @delete(route(ITEM_PATH), status_code=200)
    async def remove(
        self, request: KeyedRequest, services: Parts, conversation_id: FromPath[str], item_id: FromPath[str]
    ) -> Response[bytes]:
        return _told(await services.conversations.remove(request.user.caller, conversation_id, item_id))


def _stored(items: list[Item]) -> list[StoredItem]:
    """The items for the store. Raises InvalidField for a reference."""
    for at, item in enumerate(items):
        if isinstance(item, ItemReference):
            raise InvalidField(f"'items[{at}]' is an item reference. Send the item itself.", param=f"items[{at}].type")
    return [StoredItem(*item) for item in identified(input_json(items, mint().removeprefix(PREFIX)))]


def _told(conversation: Conversation) -> Response[bytes]:
    body = {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": msgspec.Raw(conversation.metadata),
    }
    return json_response(msgspec.json.encode(body))


async def _body(request: KeyedRequest) -> bytes:
    feed = BodyShape(RequestConfig()).feed
    return await whole_body(dict(request.scope["headers"]), request.receive, MAX_BODY_BYTES, feed)
