"""Adds the routes of this folder to the OpenAPI document of the inference API."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gateway.responses.conversation_routes import CONVERSATION_PATH, CONVERSATIONS_PATH, ITEM_PATH, ITEMS_PATH
from gateway.responses.item_page import DEFAULT_ITEMS, MAX_ITEMS, ORDERS
from gateway.responses.routes import CANCEL_PATH, INPUT_ITEMS_PATH, RESPONSE_PATH
from gateway.wire.errors import EVERY_OPERATION, ErrorBody
from gateway.wire.operation import ANY_KEY, TEMPLATE, JsonObject, body_of, operation
from gateway.wire.responses.openapi import INPUT_TOKENS_PATH
from gateway.wire.responses.openapi_response import Response
from gateway.wire.responses.schema import ChangedConversation, CountedRequest, NewConversation, NewItems

REFUSALS = {
    **EVERY_OPERATION,
    400: "The request is invalid: `error.param` names the field.",
    401: "No key, or an invalid one.",
    403: "The key lacks the scope `chat`, or the tenant is disabled.",
    404: "No such response or conversation is stored for the key's project.",
    409: "The response, or one in the conversation, has not finished.",
    413: "The body is too large.",
    503: "Stored responses or keys cannot be read now; try again.",
}
CONVERSATION_ID, ITEM_ID, RESPONSE_ID = (
    {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    for name in ("conversation_id", "item_id", "response_id")
)
STREAM = (
    {
        "name": "stream",
        "in": "query",
        "description": "As server-sent events, until the response has finished.",
        "schema": {"type": "boolean", "default": False},
    },
    {
        "name": "starting_after",
        "in": "query",
        "description": "The number of the event that the stream follows.",
        "schema": {"type": "integer", "minimum": 0},
    },
)
PAGE = (
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_ITEMS, "default": DEFAULT_ITEMS},
    },
    {"name": "order", "in": "query", "schema": {"enum": list(ORDERS), "default": "desc"}},
    {"name": "after", "in": "query", "description": "The id of an item.", "schema": {"type": "string"}},
)


class InputTokens(msgspec.Struct):
    """The size of a prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class DeletedResponse(msgspec.Struct):
    """A deleted response."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class ConversationObject(msgspec.Struct):
    """A conversation without its items. created_at: Unix time in seconds."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(msgspec.Struct):
    """A deleted conversation."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


class InputItems(msgspec.Struct):
    """A page of items."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


CONVERSATION_TYPES = (ConversationObject, DeletedConversation, NewConversation, ChangedConversation, NewItems)


def with_responses(document: bytes) -> bytes:
    """The document as JSON, with these paths and their schemas."""
    types = (Response, DeletedResponse, InputItems, CountedRequest, InputTokens, ErrorBody, *CONVERSATION_TYPES)
    (response, deleted, items, counted, tokens, error, *conversation), components = msgspec.json.schema_components(
        types, ref_template=TEMPLATE
    )
    whole = msgspec.json.decode(document)
    whole["components"]["schemas"].update(components)
    counting = operation("count_input_tokens", "Count a prompt, and generate nothing.", error, REFUSALS, tokens)
    counting["requestBody"] = body_of(counted)
    counting["security"] = ANY_KEY
    whole["paths"] |= {
        INPUT_TOKENS_PATH: {"post": counting},
        RESPONSE_PATH: {
            "get": _stored("get_response", "Get a stored response.", response, error, RESPONSE_ID, *STREAM),
            "delete": _stored("delete_response", "Delete a stored response.", deleted, error, RESPONSE_ID),
        },
        INPUT_ITEMS_PATH: {
            "get": _stored(
                "list_input_items", "List the items of a stored response's request.", items, error, RESPONSE_ID, *PAGE
            )
        },
        CANCEL_PATH: {
            "post": _stored("cancel_response", "Cancel a response in the background.", response, error, RESPONSE_ID)
        },
    } | _conversations(items, error, *conversation)
    return msgspec.json.encode(whole)


def _conversations(
    items: JsonObject,
    error: JsonObject,
    conversation: JsonObject,
    deleted: JsonObject,
    new: JsonObject,
    changed: JsonObject,
    added: JsonObject,
) -> JsonObject:
    return {
        CONVERSATIONS_PATH: {
            "post": _stored("create_conversation", "Begin a conversation.", conversation, error, body=new)
        },
        CONVERSATION_PATH: {
            "get": _stored("get_conversation", "Get a conversation.", conversation, error, CONVERSATION_ID),
            "post": _stored(
                "update_conversation", "Replace its metadata.", conversation, error, CONVERSATION_ID, body=changed
            ),
            "delete": _stored(
                "delete_conversation", "Delete a conversation and its items.", deleted, error, CONVERSATION_ID
            ),
        },
        ITEMS_PATH: {
            "get": _stored("list_conversation_items", "List its items.", items, error, CONVERSATION_ID, *PAGE),
            "post": _stored("add_conversation_items", "Add items.", items, error, CONVERSATION_ID, body=added),
        },
        ITEM_PATH: {
            "get": _stored(
                "get_conversation_item", "Get an item.", {"type": "object"}, error, CONVERSATION_ID, ITEM_ID
            ),
            "delete": _stored(
                "delete_conversation_item", "Remove an item.", conversation, error, CONVERSATION_ID, ITEM_ID
            ),
        },
    }


def _stored(
    name: str,
    summary: str,
    answer: JsonObject,
    error: JsonObject,
    *parameters: JsonObject,
    body: JsonObject | None = None,
) -> JsonObject:
    documented = operation(name, summary, error, REFUSALS, answer)
    if body is not None:
        documented["requestBody"] = body_of(body)
    return {**documented, "parameters": [*parameters], "security": ANY_KEY}
