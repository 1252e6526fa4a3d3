"""The HTTP surface: which URL does what. Handlers read like the story; the work is elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from litestar import Controller, MediaType, Request, Response, get, post
from litestar.datastructures import State
from litestar.exceptions import InternalServerException
from litestar.params import FromPath
from litestar.types import ASGIApp

from contracts.desired_state import Model
from contracts.errors import Draining, InvalidJson, MissingKey, SlipstreamError
from contracts.generation import Caller
from contracts.phases import Phase, PhaseClock
from gateway.answer import Answer, Send
from gateway.auth.key_record import KeyRecord
from gateway.call import Call, mint_request_id
from gateway.client_watch import Receive
from gateway.openai.prepare import Prepared, Target, prepare_chat, prepare_completion
from gateway.openai.schema import Common
from gateway.services import Services

AnyRequest = Request[Any, Any, State]
AskedT = TypeVar("AskedT", bound=Common)


class Inference:
    """An ASGI response that runs one exchange; Litestar calls it once the handler has returned it."""

    def __init__(self, services: Services, call: Call) -> None:
        self._services = services
        self._call = call

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve the request on the raw ASGI channel."""
        await self._services.exchange.run(self._call, receive, send)


class Refusal:
    """An ASGI response for a request that failed before it became a call."""

    def __init__(self, error: SlipstreamError, request_id: str) -> None:
        self._error = error
        self._request_id = request_id

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send the error."""
        await Answer(send, [(b"x-request-id", self._request_id.encode())]).fail(self._error)


async def authenticate(request: AnyRequest, services: Services) -> KeyRecord:
    """The key of the `Authorization: Bearer` header. Raises AuthError, AuthUnavailable or Draining."""
    if services.draining:
        raise Draining("This instance is shutting down; try again.", retry_after_s=1)
    header = request.headers.get("authorization", "")
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer" or not secret:
        raise MissingKey("No API key given. Send it as 'Authorization: Bearer sk-slip-...'.")
    return services.keyring.cached(secret) or await services.keyring.identify(secret)


async def whole_body(request: AnyRequest) -> bytes:
    """The request's body. Raises InvalidJson when the client left before it was complete: no fault of ours to log."""
    try:
        return await request.body()
    except InternalServerException:
        raise InvalidJson("The request ended before its body was complete.") from None


def client_request_id(request: AnyRequest) -> str | None:
    """The id the client chose, for its own bookkeeping; cut to what fits a log line."""
    given = request.headers.get("x-client-request-id") or request.headers.get("x-request-id")
    return "".join(character for character in given if character.isprintable())[:128] if given else None


async def begin(
    request: AnyRequest,
    services: Services,
    endpoint: str,
    decode: Callable[[bytes], AskedT],
    prepare: Callable[[AskedT, str, Caller, str, Target], Awaitable[Prepared]],
) -> ASGIApp:
    """Steps 1 and 2 of a request: who asks, and for what. The answer runs the rest."""
    clock, request_id = PhaseClock(), mint_request_id()
    try:
        key = await authenticate(request, services)
        asked = decode(await whole_body(request))
        target = services.fleet.find(asked.model)
        clock.end(Phase.AUTH)
        prepared = await prepare(asked, request_id, key.caller, services.salts.of(key.caller.organization_id), target)
    except SlipstreamError as error:
        return _refuse(services, endpoint, error, request_id)
    call = Call(request_id, client_request_id(request), endpoint, key, target, prepared, clock)
    return Inference(services, call)


class InferenceController(Controller):
    """The OpenAI endpoints."""

    path = "/v1"

    @post("/chat/completions", status_code=200)
    async def chat_completions(self, request: AnyRequest, services: Services) -> ASGIApp:
        """POST /v1/chat/completions."""
        return await begin(request, services, "chat", services.decoder.chat, prepare_chat)

    @post("/completions", status_code=200)
    async def completions(self, request: AnyRequest, services: Services) -> ASGIApp:
        """POST /v1/completions, with `suffix` for fill-in-the-middle."""
        return await begin(request, services, "completion", services.decoder.completion, prepare_completion)

    @get("/models")
    async def models(self, request: AnyRequest, services: Services) -> dict[str, Any]:
        """GET /v1/models."""
        await authenticate(request, services)
        return {"object": "list", "data": [_model(model) for model in services.fleet.models]}

    @get("/models/{name:path}")
    async def model(self, request: AnyRequest, services: Services, name: FromPath[str]) -> dict[str, Any]:
        """GET /v1/models/{model}. A path: names such as `meta/llama` hold slashes."""
        await authenticate(request, services)
        return _model(services.fleet.find(name.removeprefix("/")).model)


class SystemController(Controller):
    """For load balancers and Prometheus; no key needed, nothing of customers shown."""

    @get("/healthz", media_type=MediaType.TEXT)
    async def healthz(self) -> str:
        """The process is alive."""
        return "ok"

    @get("/readyz")
    async def readyz(self, services: Services) -> Response[dict[str, Any]]:
        """Whether this instance should get traffic, and if not, which part is missing."""
        parts = services.readiness()
        ready = all(parts.values())
        return Response({"ready": ready, "parts": parts}, status_code=200 if ready else 503)

    @get("/metrics")
    async def metrics(self, services: Services) -> Response[bytes]:
        """All instances' metrics in Prometheus' text format."""
        body, content_type = await services.scrape()
        return Response(body, headers={"content-type": content_type})


def _refuse(services: Services, endpoint: str, error: SlipstreamError, request_id: str) -> Refusal:
    services.count_refusal(endpoint, error)
    return Refusal(error, request_id)


def _model(model: Model) -> dict[str, Any]:
    """OpenAI's model object; what it lacks and IDEs ask for has its own key."""
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "slipstream",
        "tier": model.tier.value,
        "context_tokens": model.context_tokens,
        "aliases": list(model.aliases),
    }
