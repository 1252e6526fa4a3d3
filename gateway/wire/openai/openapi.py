"""OpenAPI 3.1 of the inference API. The requests' schemas come from the structs that decode them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from contracts.client_family import ClientFamily
from gateway.wire.errors import EVERY_OPERATION, ErrorBody
from gateway.wire.openai.openapi_responses import ChatCompletion, ModelEntry, ModelList, TextCompletion
from gateway.wire.openai.schema import ChatRequest, CompletionRequest, EngineCompletionRequest
from gateway.wire.operation import ANY_KEY, TEMPLATE, Operation, body_of, operation

CHAT_PATH, COMPLETION_PATH = "/v1/chat/completions", "/v1/completions"
ENGINE_PATH = "/v1/engines/{model}/completions"
OPERATIONS = (
    Operation(
        path=CHAT_PATH,
        name="create_chat_completion",
        summary="Generate text.",
        body=ChatRequest,
        answer=ChatCompletion,
    ),
    Operation(
        path=COMPLETION_PATH,
        name="create_completion",
        summary="Generate text.",
        body=CompletionRequest,
        answer=TextCompletion,
    ),
    Operation(
        path=ENGINE_PATH,
        name="create_engine_completion",
        summary="Generate text with the model in the path, for early OpenAI clients.",
        body=EngineCompletionRequest,
        answer=TextCompletion,
    ),
)
CLIENT_PARAMETER = {
    "name": "x-slipstream-client",
    "in": "header",
    "required": False,
    "description": "The kind of client, if no other header identifies it; other names are ignored.",
    "schema": {"type": "string", "examples": [*get_args(ClientFamily)]},
}
MODEL_PARAMETER = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
DESCRIPTION = """Chat and code completion as OpenAI's, Anthropic's and editors' clients speak it.

Send a project's key as `Authorization: Bearer sk-slip-…`, or in `x-api-key`; admin keys are refused here. With
`"stream": true` the answer is a stream of events; OpenAI's ends with `data: [DONE]`. Fields that are not listed are
refused by name."""

REFUSALS = {
    **EVERY_OPERATION,
    400: "The request is invalid: `error.param` names the field, or `model` for a model of another tier.",
    401: "No key, or an invalid one.",
    403: "The key lacks the scope, its project lacks access to the model, or the tenant is disabled.",
    404: "No such model.",
    413: "The body, or one of its lists, is too large.",
    429: "One of your limits, or the limit of connections: `error.code` names it, `Retry-After` says when to retry.",
    502: "The engine failed before its response began.",
    503: "The deployment is overloaded; no limit of yours is reached. Try again after `Retry-After`.",
    504: "The engine did not answer in time.",
}


def document(others: Sequence[Operation] = ()) -> bytes:
    """The document as JSON. others: the operations of other APIs."""
    operations = (*OPERATIONS, *others)
    parts = [part for served in operations for part in (served.body, served.answer, served.error)]
    types = (ModelList, ModelEntry, ErrorBody, *parts)
    (models, model, error, *schemas), components = msgspec.json.schema_components(types, ref_template=TEMPLATE)
    generating: dict[str, dict[str, Any]] = {}
    for number, served in enumerate(operations):
        documented = _generate(served, *schemas[3 * number : 3 * number + 3])
        same = generating.setdefault(served.path, documented)
        if same is not documented:
            _add(same, documented)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Slipstream", "version": "1", "description": DESCRIPTION},
            "paths": {
                **{path: {"post": documented} for path, documented in generating.items()},
                "/v1/models": {"get": operation("list_models", "The models the key may use.", error, REFUSALS, models)},
                "/v1/models/{model}": {
                    "get": {
                        **operation("get_model", "One model, by its name or an alias.", error, REFUSALS, model),
                        "parameters": [MODEL_PARAMETER],
                    }
                },
            },
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "key": {"type": "http", "scheme": "bearer"},
                    "key_header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
                },
            },
            "security": [{"key": []}],
        }
    )


def _generate(served: Operation, body: dict[str, Any], answer: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    documented = operation(served.name, served.summary, error, {**REFUSALS, **served.refusals}, answer)
    if served.streamed:
        documented["responses"]["200"]["content"]["text/event-stream"] = {}
    documented["requestBody"] = body_of(body)
    documented["security"] = ANY_KEY
    documented["parameters"] = [*([MODEL_PARAMETER] if "{model}" in served.path else ()), CLIENT_PARAMETER]
    return documented


def _add(documented: dict[str, Any], other: dict[str, Any]) -> None:
    """Add another API's requests and answers at the same path."""
    documented["summary"] += f" {other['summary']}"
    parts = [(one["requestBody"], one["responses"]["200"]) for one in (documented, other)]
    for ours, theirs in zip(*parts, strict=True):
        media, more = ours["content"]["application/json"], theirs["content"]["application/json"]
        media["schema"] = {"anyOf": [media["schema"], more["schema"]]}
