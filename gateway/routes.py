"""Maps URLs to handlers. A handler checks the key and formats the response; other modules do the work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from litestar import Controller, MediaType, Request, Response, get, post
from litestar.datastructures import State
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.types import ASGIApp

from contracts.adapter import Adapter
from contracts.desired_state import Model
from contracts.pooling import Task
from contracts.stream_audit import PATH as STREAM_AUDIT_PATH
from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.auth.scopes import Scope
from gateway.http.client_connection import SCOPE_KEY
from gateway.services import Services
from gateway.serving.model_catalog import ModelCatalog
from gateway.wire.key_header import authorization_of

AnyRequest = Request[Any, Any, State]


def inference_route(path: str, endpoint: ASGIApp) -> HTTPRouteHandler:
    """Create the POST route of one path. The front door calls the endpoint directly. This route serves spellings of the
    path that only Litestar accepts, and lets Litestar refuse other methods."""

    @post(path, status_code=200, name=path)
    async def generate() -> ASGIApp:
        return endpoint

    return generate


def named_inference_route(path: str, endpoint_of: Callable[[str], ASGIApp]) -> HTTPRouteHandler:
    """Like `inference_route`, for a path with `{model}`."""

    @post(path.replace("{model}", "{model:str}"), status_code=200, name=path)
    async def generate(model: FromPath[str]) -> ASGIApp:
        return endpoint_of(model)

    return generate


def stream_audit_route(endpoint: ASGIApp) -> HTTPRouteHandler:
    """Create the GET route of the known stream."""

    @get(STREAM_AUDIT_PATH, name=STREAM_AUDIT_PATH)
    async def audit() -> ASGIApp:
        return endpoint

    return audit


class ModelsController(Controller):
    """Lists models."""

    path = "/v1/models"

    @get("/")
    async def models(self, request: AnyRequest, services: Services) -> dict[str, Any]:
        key = await _authenticate(request, services)
        key.require_scope(Scope.MODELS)
        catalog = services.catalog
        usable = [model for model in catalog.models if key.may_use(model)]
        models = [_model(model, catalog) for model in usable]
        return {"object": "list", "data": [*models, *_adapted(usable, key, catalog)]}

    @get("/{name:path}")
    async def model(self, request: AnyRequest, services: Services, name: FromPath[str]) -> dict[str, Any]:
        """GET /v1/models/{model}. `name` is a path, because names such as `meta/llama` contain slashes."""
        key = await _authenticate(request, services)
        key.require_scope(Scope.MODELS)
        requested = name.removeprefix("/")
        target = services.catalog.find(requested, key.may_use, key.adapters)
        key.require_model(target.model, requested, services.catalog.models)
        return _model(target.model, services.catalog, target.adapter)


class SystemController(Controller):
    """Health checks for load balancers. They need no key and show no customer data."""

    @get(["/healthz", "/health"], media_type=MediaType.TEXT)
    async def healthz(self) -> str:
        """Report that the process is alive."""
        return "ok"

    @get("/readyz")
    async def readyz(self, services: Services) -> Response[dict[str, Any]]:
        """Report whether this instance should get traffic, the missing part if not, and each engine's state.

        An unusable engine is no reason to send traffic elsewhere, because other instances have the same engines.
        """
        parts = services.readiness()
        ready = all(parts.values())
        body = {"ready": ready, "parts": parts, "replicas": services.replicas()}
        return Response(body, status_code=200 if ready else 503)


async def _authenticate(request: AnyRequest, services: Services) -> KeyRecord:
    key = await authenticate(authorization_of(dict(request.scope["headers"])), services.keyring)
    request.scope[SCOPE_KEY].serve(key.caller.organization_id)  # type: ignore[literal-required]
    return key


def _adapted(models: list[Model], key: KeyRecord, catalog: ModelCatalog) -> list[dict[str, Any]]:
    """The key's adapters of these models. If two adapters have one name, the list has the one that the name selects."""
    by_name = {model.name: model for model in models}
    own = {one.public_name: one for one in reversed(key.adapters) if one.model in by_name}
    return [_model(by_name[adapter.model], catalog, adapter) for _, adapter in sorted(own.items())]


def _model(model: Model, catalog: ModelCatalog, adapter: Adapter | None = None) -> dict[str, Any]:
    """OpenAI's model object, with further keys for IDEs and for `slipstream usage autocomplete fit`."""
    if adapter is not None:
        return {**_model(model, catalog), "id": adapter.public_name, "aliases": [], "parent": model.name}
    return {
        "id": model.name,
        "object": "model",
        "created": catalog.known_since.get(model.name, 0),
        "owned_by": "slipstream",
        "tier": model.tier.value,
        "context_tokens": model.context_tokens,
        "context_length": model.context_tokens,
        "max_model_len": model.context_tokens,
        "aliases": list(model.aliases),
        **({} if model.task is Task.TEXT else {"task": model.task.value}),
        **({"description": model.description} if model.description else {}),
        **({"healing": healing} if (healing := catalog.healing(model)) else {}),
    }
