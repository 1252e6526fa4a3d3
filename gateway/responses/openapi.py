"""The routes of this folder in the OpenAPI document of the inference API."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gateway.responses.routes import CANCEL_PATH, DEFAULT_ITEMS, INPUT_ITEMS_PATH, MOST_ITEMS, ORDERS, RESPONSE_PATH
from gateway.wire.errors import EVERY_OPERATION, ErrorBody
from gateway.wire.responses.openapi import INPUT_TOKENS_PATH
from gateway.wire.responses.openapi_response import Response
from gateway.wire.responses.schema import CountedRequest

TEMPLATE = "#/components/schemas/{name}"
REFUSALS = {
    **EVERY_OPERATION,
    400: "The request is invalid: `error.param` names the field.",
    401: "No key, or one that opens nothing.",
    403: "The key lacks the scope `chat`, or the tenant is disabled.",
    404: "No such response is stored for the key's project.",
    413: "The body is too large.",
    503: "Stored responses or keys cannot be read now; try again.",
}
RESPONSE_ID = {"name": "response_id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
PAGE = (
    {
        "name": "limit",
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST_ITEMS, "default": DEFAULT_ITEMS},
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


class InputItems(msgspec.Struct):
    """A page of a request's items."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


def with_responses(document: bytes) -> bytes:
    """The document as JSON, with these paths and their schemas."""
    types = (Response, DeletedResponse, InputItems, CountedRequest, InputTokens, ErrorBody)
    (response, deleted, items, counted, tokens, error), components = msgspec.json.schema_components(
        types, ref_template=TEMPLATE
    )
    whole = msgspec.json.decode(document)
    whole["components"]["schemas"].update(components)
    counting = _operation("count_input_tokens", "Count a prompt, and generate nothing.", tokens, error)
    counting["requestBody"] = {"required": True, "content": {"application/json": {"schema": counted}}}
    counting["security"] = [{"key": []}, {"key_header": []}]
    whole["paths"] |= {
        INPUT_TOKENS_PATH: {"post": counting},
        RESPONSE_PATH: {
            "get": _stored("get_response", "Get a stored response.", response, error),
            "delete": _stored("delete_response", "Delete a stored response.", deleted, error),
        },
        INPUT_ITEMS_PATH: {
            "get": _stored("list_input_items", "List the items of a stored response's request.", items, error, *PAGE)
        },
        CANCEL_PATH: {
            "post": _stored("cancel_response", "Refuse to cancel: a stored response is complete.", response, error)
        },
    }
    return msgspec.json.encode(whole)


def _stored(
    name: str, summary: str, answer: dict[str, Any], error: dict[str, Any], *parameters: dict[str, Any]
) -> dict[str, Any]:
    documented = _operation(name, summary, answer, error)
    return {
        **documented,
        "parameters": [RESPONSE_ID, *parameters],
        "security": [{"key": []}, {"key_header": []}],
    }


def _operation(name: str, summary: str, answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    refusals = {
        str(code): {"description": text, "content": {"application/json": {"schema": error}}}
        for code, text in REFUSALS.items()
    }
    done = {"description": "Done.", "content": {"application/json": {"schema": answer}}}
    return {"operationId": name, "summary": summary, "responses": {"200": done, **refusals}}
