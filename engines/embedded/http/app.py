"""The engine's ASGI application, with its routes, the token check, and errors in SGLang's form."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from contracts.errors import (
    InternalError,
    InvalidKey,
    MethodNotAllowed,
    MissingKey,
    NotFound,
    PermissionDenied,
    SlipstreamError,
)
from engines.embedded.http.adapters import AdapterHandlers
from engines.embedded.http.control import ControlHandlers
from engines.embedded.http.embeddings import EmbeddingHandlers
from engines.embedded.http.errors import error_answer
from engines.embedded.http.exchange import JSON, Exchange, Receive, Send
from engines.embedded.http.generate import GenerateHandlers
from engines.embedded.service import Service
from engines.embedded.spans import EngineSpans

logger = logging.getLogger(__name__)
Handler = Callable[[Exchange], Awaitable[None]]
OPEN_PATHS = frozenset({"/health"})
"""Paths that are answered without the token."""
METRICS_PATHS = frozenset({"/v1/loads", "/metrics"})
"""Paths that the metrics token opens too, because they return only totals and nothing about a request."""
PROBE_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Paths on which `ProbeGate` accepts probes with the metrics token."""


class App:
    """Serves one engine over HTTP."""

    def __init__(
        self, service: Service, token: str | None, metrics_token: str | None = None, spans: EngineSpans | None = None
    ) -> None:
        """token: the bearer token that all paths but /health require; None to require none. metrics_token: opens only
        load, metrics and the router's probes. spans: None to trace nothing."""
        generate, control = GenerateHandlers(service, spans), ControlHandlers(service)
        adapters = AdapterHandlers(service)
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._expected_for_metrics = None if metrics_token is None else f"Bearer {metrics_token}".encode()
        self._routes: dict[str, dict[str, Handler]] = {
            "/v1/chat/completions": {"POST": generate.chat},
            "/v1/completions": {"POST": generate.completion},
            "/v1/embeddings": {"POST": EmbeddingHandlers(service, service.pooling).create},
            "/v1/models": {"GET": control.models},
            "/v1/loads": {"GET": control.loads},
            "/health": {"GET": control.health},
            "/health_generate": {"GET": control.health},
            "/get_model_info": {"GET": control.model_info},
            "/model_info": {"GET": control.model_info},
            "/get_server_info": {"GET": control.server_info},
            "/server_info": {"GET": control.server_info},
            "/abort_request": {"POST": control.abort},
            "/load_lora_adapter": {"POST": adapters.load},
            "/unload_lora_adapter": {"POST": adapters.unload},
            "/flush_cache": {"POST": control.flush_cache, "GET": control.flush_cache},
            "/usage": {"GET": control.usage},
            "/metrics": {"GET": control.metrics},
        }

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        try:
            self._require_token(exchange)
            await self._handler(exchange)(exchange)
        except SlipstreamError as error:
            if exchange.started:
                # only a cut connection can show that a stream with status 200 failed
                raise
            await self._refuse(exchange, error)
        except Exception:
            if exchange.started:
                raise
            logger.exception("%s %s failed", exchange.method, exchange.path)
            await self._refuse(exchange, InternalError("The engine failed internally; its log has the details."))

    def _handler(self, exchange: Exchange) -> Handler:
        methods = self._routes.get(exchange.path)
        if methods is None:
            raise NotFound(f"No such path: {exchange.path}")
        handler = methods.get(exchange.method)
        if handler is None:
            raise MethodNotAllowed(f"{exchange.path} takes {', '.join(methods)}, not {exchange.method}.")
        return handler

    def _require_token(self, exchange: Exchange) -> None:
        if self._expected is None or exchange.path in OPEN_PATHS:
            return
        header = exchange.header(b"authorization")
        if not header:
            raise MissingKey("This engine needs `Authorization: Bearer` with the deployment's token.")
        sent = header.encode("latin-1")
        if hmac.compare_digest(sent, self._expected):
            return
        if self._expected_for_metrics is None or not hmac.compare_digest(sent, self._expected_for_metrics):
            raise InvalidKey("The bearer token is not this deployment's.")
        exchange.observer = True
        if exchange.path not in METRICS_PATHS | PROBE_PATHS:
            raise PermissionDenied("The metrics token opens load, metrics and probes only.")

    async def _refuse(self, exchange: Exchange, error: SlipstreamError) -> None:
        status, body = error_answer(error)
        headers = [JSON]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
        await exchange.answer(status, body, *headers)
