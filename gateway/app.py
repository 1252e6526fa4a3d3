"""Builds one ASGI application from a gateway's endpoints and routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from litestar.datastructures import State

from contracts.pooling import Task
from gateway.auth.scopes import Scope
from gateway.autocomplete.openapi import with_autocomplete
from gateway.autocomplete.routes import CompletionEventsController, TabbyController
from gateway.config import GatewayConfig
from gateway.http.cross_origin import CrossOrigin
from gateway.http.document import document_route
from gateway.http.front_door import FrontDoor
from gateway.http.front_page import front_page
from gateway.http.loop_shares import LoopShares
from gateway.http.pace import Pace
from gateway.http.page_origins import checked_origins
from gateway.http.routing import routes
from gateway.responses.conversation_routes import ConversationsController
from gateway.responses.endpoint import InputTokensEndpoint, ResponsesEndpoint
from gateway.responses.openapi import with_responses
from gateway.responses.routes import ResponsesController
from gateway.routes import (
    ModelsController,
    SystemController,
    inference_route,
    named_inference_route,
    stream_audit_route,
)
from gateway.services import MountedApp, Services
from gateway.serving.body_room import BodyRoom
from gateway.serving.endpoint import InferenceEndpoint, IsTheirs
from gateway.serving.token_count import TokenCountEndpoint
from gateway.stream_audit.endpoint import StreamAuditEndpoint
from gateway.stream_audit.openapi import with_stream_audit
from gateway.wire.anthropic.format import CountTokensFormat, MessagesFormat
from gateway.wire.anthropic.openapi import ANTHROPIC_OPERATIONS, COUNT_TOKENS_PATH, MESSAGES_PATH
from gateway.wire.config import RequestConfig
from gateway.wire.format import CountingFormat, WireFormat
from gateway.wire.llama_cpp.format import InfillFormat, LlamaCompletionFormat
from gateway.wire.llama_cpp.openapi import INFILL_PATH, LLAMA_COMPLETION_PATH, LLAMA_CPP_OPERATIONS
from gateway.wire.mistral.format import FimFormat
from gateway.wire.mistral.openapi import FIM_OPERATION, FIM_PATH
from gateway.wire.openai.format import ChatFormat, CompletionFormat, EngineCompletionFormat, StreamAuditFormat
from gateway.wire.openai.openapi import CHAT_PATH, COMPLETION_PATH, ENGINE_PATH, document
from gateway.wire.pooling.format import EmbeddingFormat, RerankFormat, ScoreFormat
from gateway.wire.pooling.openapi import EMBEDDINGS_PATH, POOLING_OPERATIONS, RERANK_PATH, SCORE_PATH
from gateway.wire.responses.format import InputTokensFormat, ResponsesFormat
from gateway.wire.responses.openapi import INPUT_TOKENS_PATH, RESPONSES_OPERATION, RESPONSES_PATH
from gateway.wire.tabby.body import has_segments
from gateway.wire.tabby.format import TabbyFormat
from gateway.wire.tabby.openapi import TABBY_OPERATION, TABBY_PATH
from gateway.wire.tokenize.format import DetokenizeFormat, TokenizeFormat
from gateway.wire.tokenize.openapi import DETOKENIZE_PATH, TOKEN_OPERATIONS, TOKENIZE_PATH

INFERENCE: Mapping[str, tuple[Callable[[RequestConfig], WireFormat[Any]], Scope]] = {
    CHAT_PATH: (ChatFormat, Scope.CHAT),
    COMPLETION_PATH: (CompletionFormat, Scope.COMPLETIONS),
    FIM_PATH: (FimFormat, Scope.COMPLETIONS),
    INFILL_PATH: (InfillFormat, Scope.COMPLETIONS),
    LLAMA_COMPLETION_PATH: (LlamaCompletionFormat, Scope.COMPLETIONS),
    MESSAGES_PATH: (MessagesFormat, Scope.CHAT),
}
"""The wire format of each inference path, and the scope that a key needs for it."""
POOLING: Mapping[str, tuple[Callable[[RequestConfig], WireFormat[Any]], Task]] = {
    EMBEDDINGS_PATH: (EmbeddingFormat, Task.EMBEDDING),
    RERANK_PATH: (RerankFormat, Task.RERANK),
    SCORE_PATH: (ScoreFormat, Task.RERANK),
}
"""The wire format of each path that generates no text, and the task of its models."""
COUNTS: Mapping[str, tuple[Callable[[RequestConfig], CountingFormat[Any]], Scope, Task | None]] = {
    COUNT_TOKENS_PATH: (CountTokensFormat, Scope.CHAT, Task.TEXT),
    TOKENIZE_PATH: (TokenizeFormat, Scope.MODELS, None),
    DETOKENIZE_PATH: (DetokenizeFormat, Scope.MODELS, None),
}
"""The wire format, scope and models' task (None for any) of each path that only the gateway's tokenizers serve."""
BY_BODY: Mapping[str, tuple[IsTheirs, Callable[[RequestConfig], WireFormat[Any]]]] = {
    TABBY_PATH: (has_segments, TabbyFormat),
}
"""Paths that two APIs share, each with the test for a body of the second API and that API's wire format."""
SERVED = {
    **{
        path: "POST" for path in (*INFERENCE, *COUNTS, *POOLING) if path not in (LLAMA_COMPLETION_PATH, DETOKENIZE_PATH)
    },
    RESPONSES_PATH: "POST",
    "/v1/models": "GET",
}
"""Paths of model clients, with their methods. `/completion` and `/detokenize` are left out, because a path that
resembles one of them misspells another path."""


def create_app(services: Services, config: GatewayConfig, mounted: MountedApp | None) -> FrontDoor | CrossOrigin:
    """Create the ASGI application. mounted: an application that serves further paths; None if there is none."""
    max_body_bytes, requests = config.max_body_bytes, config.requests
    shares, room = LoopShares(), BodyRoom(requests.organization_body_bytes)
    others = {path: [(is_theirs, wire_format(requests))] for path, (is_theirs, wire_format) in BY_BODY.items()}
    endpoints: dict[str, InferenceEndpoint[Any]] = {
        path: InferenceEndpoint(
            services, wire_format(requests), scope, max_body_bytes, requests, shares, room, others.get(path, [])
        )
        for path, (wire_format, scope) in INFERENCE.items()
    }
    for path, (wire_format, task) in POOLING.items():
        endpoints[path] = InferenceEndpoint(
            services, wire_format(requests), Scope.EMBEDDINGS, max_body_bytes, requests, shares, room, task=task
        )
    endpoints |= {
        path: TokenCountEndpoint(services, counting(requests), scope, max_body_bytes, requests, shares, room, task)
        for path, (counting, scope, task) in COUNTS.items()
    }
    shared = services.responses, services.conversations, services.background, max_body_bytes, requests, shares, room
    endpoints |= {
        RESPONSES_PATH: ResponsesEndpoint(
            services, ResponsesFormat(requests), services.event_streams, lambda: services.draining, *shared
        ),
        INPUT_TOKENS_PATH: InputTokensEndpoint(services, InputTokensFormat(requests), *shared),
    }
    engine_format = EngineCompletionFormat(requests)

    def engine_endpoint(model: str) -> InferenceEndpoint[Any]:
        wire_format = engine_format.of(model)
        return InferenceEndpoint(services, wire_format, Scope.COMPLETIONS, max_body_bytes, requests, shares, room)

    stream_audit = StreamAuditEndpoint(
        services, services.stream_audits, StreamAuditFormat(requests), shares, lambda: services.draining
    )
    also_serves = mounted.serves if mounted is not None else _none
    litestar_app = routes(
        [
            *(inference_route(path, endpoint) for path, endpoint in endpoints.items()),
            named_inference_route(ENGINE_PATH, engine_endpoint),
            ModelsController,
            SystemController,
            CompletionEventsController,
            TabbyController,
            ResponsesController,
            ConversationsController,
            front_page(also_serves),
            stream_audit_route(stream_audit),
            document_route("/openapi.json", lambda: _document(config, mounted)),
        ],
        State({"services": services}, deep_copy=False),
        max_body_bytes,
        SERVED,
    )

    async def dispatch(scope: Any, receive: Any, send: Any) -> None:
        if mounted is not None and scope["type"] == "http" and mounted.serves(scope["path"]):
            await mounted(scope, receive, send)
        else:
            await litestar_app(scope, receive, send)

    prefix, _, suffix = ENGINE_PATH.partition("{model}")
    pace = Pace(shares, config.connections.trusted_proxies)
    door = FrontDoor(endpoints, dispatch, pace, {(prefix, suffix): engine_endpoint})
    if not config.cors_origins:
        return door
    return CrossOrigin(door, checked_origins(config.cors_origins), pace, also_serves)


def _none(_: str) -> bool:
    return False


def _document(config: GatewayConfig, mounted: MountedApp | None) -> bytes:
    operations = [
        *ANTHROPIC_OPERATIONS, FIM_OPERATION, *LLAMA_CPP_OPERATIONS, TABBY_OPERATION, RESPONSES_OPERATION,
        *POOLING_OPERATIONS, *TOKEN_OPERATIONS,
    ]  # fmt: skip
    merged = with_stream_audit(with_responses(with_autocomplete(document(operations))), config.stream_audit)
    return merged if mounted is None else mounted.document(merged)
