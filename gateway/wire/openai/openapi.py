"""OpenAPI 3.1 of the inference API. The requests' schemas are those of the structs that decode them."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.wire.errors import EVERY_OPERATION, ErrorBody
from gateway.wire.openai.openapi_responses import ChatCompletion, ModelEntry, ModelList, TextCompletion
from gateway.wire.openai.schema import ChatRequest, CompletionRequest

CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
TEMPLATE = "#/components/schemas/{name}"
DESCRIPTION = """Chat and code completion as OpenAI's clients speak it.

Send a project's key as `Authorization: Bearer sk-slip-…`; admin keys are refused here. With `"stream": true` the answer
is a stream of events that ends with `data: [DONE]`. Fields that are not listed are refused by name."""

REFUSALS = {
    **EVERY_OPERATION,
    400: "The request cannot be served as it is written: `error.param` names the field.",
    401: "No key, or one that opens nothing.",
    403: "The key lacks the scope, its project lacks access to the model, or the tenant is disabled.",
    404: "No such model.",
    413: "The body is too large.",
    429: "A limit of yours, or of connections: `error.code` says which, `Retry-After` when it frees.",
    502: "The engine broke off before it began to answer.",
    503: "Our load, not your limit: try again after `Retry-After`.",
    504: "The engine did not answer in time.",
}


def document() -> bytes:
    """The document as JSON."""
    types = (ChatRequest, CompletionRequest, ChatCompletion, TextCompletion, ModelList, ModelEntry, ErrorBody)
    schemas, components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    chat, completion, chat_answer, text_answer, models, model, error = schemas
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Slipstream", "version": "1", "description": DESCRIPTION},
            "paths": {
                CHAT_PATH: {"post": _generate("create_chat_completion", chat, chat_answer, error)},
                COMPLETION_PATH: {"post": _generate("create_completion", completion, text_answer, error)},
                "/v1/models": {"get": _operation("list_models", "The models the key may use.", models, error)},
                "/v1/models/{model}": {
                    "get": {
                        **_operation("get_model", "One model, by its name or an alias.", model, error),
                        "parameters": [
                            {
                                "name": "model",
                                "in": "path",
                                "required": True,
                                "schema": {"type": "string", "minLength": 1},
                            }
                        ],
                    }
                },
            },
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{"key": []}],
        }
    )


def _generate(name: str, body: dict[str, Any], answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    operation = _operation(name, "Generate text.", answer, error)
    operation["responses"]["200"]["content"]["text/event-stream"] = {}
    operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _operation(name: str, summary: str, answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": answer}}},
            **{
                str(status): {"description": text, "content": {"application/json": {"schema": error}}}
                for status, text in REFUSALS.items()
            },
        },
    }
