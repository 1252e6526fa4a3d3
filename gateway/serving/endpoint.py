"""Authenticates and decodes an inference request; `RequestPipeline` does the rest.

An endpoint is a separate ASGI application, so that the front door can call it directly. The routes lead to it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, TypeVar

import msgspec

from contracts.desired_state import Model
from contracts.errors import (
    AuthError,
    EngineLoop,
    InternalError,
    PreparationTimeout,
    ScopeMissing,
    SlipstreamError,
    WrongEndpoint,
)
from contracts.generation import Tier
from contracts.misfit import shortened
from contracts.phases import Phase
from contracts.pooling import Task
from engines.http.engine_connections import SENDER_HEADER
from gateway.auth.bearer import authenticate
from gateway.auth.key_record import KeyRecord
from gateway.auth.keyring import Keyring
from gateway.auth.scopes import Scope
from gateway.http.client_connection import SCOPE_KEY, ClientConnection
from gateway.http.disconnect import ClientGone, ClientWatch
from gateway.http.loop_shares import LARGE_BYTES, REFUSAL_S, LoopShares
from gateway.http.request_body import Receive, whole_body
from gateway.http.response import ResponseWriter
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.access_log import AccessLog
from gateway.serving.body_room import Body, BodyRoom
from gateway.serving.cascade import Cascades
from gateway.serving.idle_timeout import IdleTimeouts, Wait
from gateway.serving.model_catalog import ModelCatalog
from gateway.serving.pipeline import RequestPipeline
from gateway.serving.request import Arrival, InferenceRequest, Salts
from gateway.serving.request_spans import Ended, RequestSpans
from gateway.serving.service_tier import in_class
from gateway.serving.trace import Traces
from gateway.wire.body_shape import BodyShape
from gateway.wire.config import RequestConfig
from gateway.wire.format import Asked, AskedT, WireFormat
from gateway.wire.prepared import Prepared, Target
from telemetry.current_request import CurrentRequest, current_request

_SENDER = SENDER_HEADER.encode()
POOL_HEADER = b"x-slipstream-pool"
"""Header that names the pool for one of the deployment's own requests."""
LONG_BYTES = 1_000_000
"""A longer body blocks the loop for milliseconds while it is decoded, and as long again while it is counted."""
LET_IN_S = 0.001
"""Pause between the decoding and the counting of a long body."""
LONG_ON_ITS_WAY_S = 0.5
"""Age at which a request's key is checked again, because revocations hold within a second."""
TIERS = {Scope.CHAT: Tier.CHAT, Scope.COMPLETIONS: Tier.AUTOCOMPLETE}
"""Tier of the models that a scope's endpoints are made for."""

_NOTHING = contextlib.nullcontext()
logger = logging.getLogger(__name__)
WorkT = TypeVar("WorkT")
IsTheirs = Callable[[bytes], bool]
"""Whether a body, whose JSON is not yet checked, belongs to another API on the same path."""


class InferenceServices(msgspec.Struct, kw_only=True):
    """References to a running gateway's parts that endpoints use. Each part owns its own state. spans: None if nothing
    is traced. access_log: None if no log is written."""

    keyring: Keyring
    catalog: ModelCatalog
    pipeline: RequestPipeline
    pooling: RequestPipeline
    """Serves requests without output: vectors and scores."""
    idle_timeouts: IdleTimeouts
    metrics: GatewayMetrics
    traces: Traces
    salts: Salts
    cascades: Cascades
    spans: RequestSpans | None = None
    access_log: AccessLog | None = None

    def refused(self, arrival: Arrival, error: SlipstreamError, status: int) -> None:
        """Count a request that was refused before it was prepared, and record it if its caller is known."""
        self.metrics.answered("none", arrival.endpoint, status, error.code)  # its tier is unknown
        if error.caller is not None:
            arrival.clock.end(Phase.AUTH)
            self.traces.refused(arrival, error.caller, status, error)


class InferenceEndpoint(Generic[AskedT]):
    """One endpoint. wire_format: its clients' format. scope: the scope that keys need. others: APIs on the same path,
    with the tests for their bodies. task: the task that models need; None for any."""

    generates = True
    """Whether an engine serves its requests."""

    def __init__(
        self,
        services: InferenceServices,
        wire_format: WireFormat[AskedT],
        scope: Scope,
        max_body_bytes: int,
        config: RequestConfig,
        shares: LoopShares,
        room: BodyRoom,
        others: Sequence[tuple[IsTheirs, WireFormat[Any]]] = (),
        task: Task | None = Task.TEXT,
    ) -> None:
        self._services = services
        self._format = wire_format
        self._scope = scope
        self._max_body_bytes = max_body_bytes
        self._config = config
        self._shares = shares
        self._room = room
        self._others = others
        self._task = task
        self._tier = TIERS.get(scope)
        self._own_sender = services.salts.deployment.encode()

    async def __call__(self, scope: Any, receive: Receive, send: Any) -> None:
        """Serve one request on its connection; `send` is not used."""
        # popped: it refers to uvicorn's cycle, which refers to the scope; only the garbage collector would free them
        connection: ClientConnection = scope.pop(SCOPE_KEY)
        arrival = Arrival(self._format, dict(scope["headers"]), connection.network)
        names = CurrentRequest(arrival.request_id)
        current_request.set(names)
        spans, access_log = self._services.spans, self._services.access_log
        if spans is not None:
            spans.begin(arrival)
            names.trace_id = arrival.trace_id or ""
        begun = await self._begun(arrival, connection, receive, names)
        ended = begun if isinstance(begun, Ended) else await self._answer(arrival, connection, begun)
        # a path may have a model's name, which is as long as any client likes
        if spans is not None:
            spans.end(arrival, shortened(scope["path"]), ended)
        if access_log is not None:
            access_log.write(arrival, shortened(scope["path"]), ended, names.organization_id)

    async def _begun(
        self, arrival: Arrival, connection: ClientConnection, receive: Receive, names: CurrentRequest
    ) -> InferenceRequest | Ended:
        """The prepared request, or its end if it was refused. names: the ids for its log lines. Raises nothing."""
        services = self._services
        try:
            async with ClientWatch(connection):
                return await self._begin(arrival, receive, connection, names)
        except ClientGone:
            services.metrics.answered("none", arrival.endpoint, 499, "client_gone")
            return Ended(499, "client_gone")
        except SlipstreamError as error:
            status = arrival.wire_format.error_status(error)
            services.refused(arrival, error, status)
            response_of(arrival, connection).fail(error)
            return Ended(status, error.code)
        except Exception:
            logger.exception("request %s failed", arrival.request_id)
            internal_error = InternalError(f"Internal error. Quote request {arrival.request_id} when you report it.")
            response_of(arrival, connection).fail(internal_error)
            return Ended(500, internal_error.code)

    async def _answer(self, arrival: Arrival, connection: ClientConnection, request: InferenceRequest) -> Ended:
        """Serve a prepared request to its end. Raises nothing."""
        services = self._services
        connection.reserved()  # the pipeline reserves first, or refuses
        response = response_of(arrival, connection)
        wait = Wait()
        services.idle_timeouts.add(wait)
        pipeline = services.pipeline if self._task is Task.TEXT else services.pooling
        try:
            await pipeline.run(request, connection, response, wait)
        finally:
            services.idle_timeouts.remove(wait)
        refused = response.status >= 400 and not request.ran
        if refused is not arrival.paid:
            cost_s = REFUSAL_S if refused else -REFUSAL_S
            self._shares.unserved.spend(request.caller.organization_id, cost_s)
        return Ended(response.status or 499, response.error_code, request)

    async def _begin(
        self, arrival: Arrival, receive: Receive, connection: ClientConnection, names: CurrentRequest
    ) -> InferenceRequest:
        """Authenticate, decode and prepare a request. names: the ids for its log lines."""
        key = await self._key(arrival.headers, connection.network)
        organization_id = names.organization_id = key.caller.organization_id
        connection.serve(organization_id)
        try:
            try:
                key.require_scope(self._scope)
                if arrival.headers.get(_SENDER) == self._own_sender:
                    raise _loop(arrival.headers)
                arrival.pool = self._pool(arrival.headers, key)
            except SlipstreamError:
                await self._shares.turn(organization_id)  # other requests wait for it before their body is read
                raise
            unserved = self._shares.unserved
            if not unserved.free(organization_id):
                async with unserved.first(organization_id):
                    unserved.spend(organization_id, REFUSAL_S)  # at once, or all waiting requests would begin together
                arrival.paid = True
            async with self._room_for(arrival.headers, organization_id) as room:
                body = await self._body(arrival.headers, receive, connection, organization_id, room)
                async with _InTime(self._config.prepare_timeout_s):
                    decoded = await self._asked(arrival, body, organization_id)
                    del body  # the decoded request has a copy of it
                    if arrival.clock.age_s > LONG_ON_ITS_WAY_S:  # a key may have been revoked meanwhile
                        key = await self._key(arrival.headers, connection.network)
                    return await self._prepared(arrival, key, decoded)
        except SlipstreamError as error:
            self._shares.spend(organization_id, REFUSAL_S)
            error.caller = key.caller if key.purpose is None else None
            raise

    async def _prepared(self, arrival: Arrival, key: KeyRecord, decoded: Asked) -> InferenceRequest:
        """Prepare the request for its model, and for the small model that responds first, if any."""
        services, prepare = self._services, arrival.wire_format.prepare
        salt = services.salts.of(key.caller.organization_id)
        arrival.model = decoded.model or None
        target = services.catalog.find(decoded.model, key.may_use, key.adapters, self._task, self._tier)
        key.require_model(target.model, decoded.model, services.catalog.models)
        if target.model.task is not self._task and self._task is not None:
            raise self._wrong_task(target.model, key)
        cascades = self.generates and target.model.cascade is not None
        small = services.catalog.first_of(target) if cascades else None
        measured = small is not None and arrival.pool == small.model.pool != target.model.pool
        if measured:
            arrival.pool = ""  # the small model's pool selects the cascade
        elif arrival.pool:
            target = services.catalog.on_pool(target, arrival.pool)
        target = msgspec.structs.replace(target, client=arrival.client)
        arrival.clock.end(Phase.AUTH)

        async def prepare_for(other: Target) -> Prepared:
            result = await prepare(decoded, arrival.request_id, key.caller, salt, other)
            return in_class(result, key.priorities.for_tier(target.model.tier))

        try:
            prepared = await prepare_for(target)
        except WrongEndpoint as error:
            raise self._with_chat_models(error, key) from None
        request = InferenceRequest(arrival, key, target, prepared)
        if small is not None and (measured or (key.purpose is None and not key.line)):
            request.first = await services.cascades.first(target, prepared, prepare_for, measured=measured)
        return request

    def _pool(self, headers: Mapping[bytes, bytes], key: KeyRecord) -> str:
        """The pool that the deployment's own request names; empty if none. Raises ScopeMissing for other requests."""
        pool_name = headers.get(POOL_HEADER)
        if pool_name is None:
            return ""
        if key.purpose is None:
            name = POOL_HEADER.decode()
            raise ScopeMissing(
                f"Only the deployment's own keys with the scope '{Scope.EVALS.value}' may select a pool with the "
                f"header '{name}'. Leave the header out.",
                param=name,
            )
        return pool_name.decode("latin-1")

    def _with_chat_models(self, error: WrongEndpoint, key: KeyRecord) -> WrongEndpoint:
        """Add the caller's chat models, which only the endpoint knows, to the error."""
        names = ", ".join(self._services.catalog.names(key.may_use, chat=True))
        advice = f"Chat models that this key may use: {names}." if names else "This key may use no chat model."
        return WrongEndpoint(f"{error.message} {advice}", param=error.param)

    def _wrong_task(self, model: Model, key: KeyRecord) -> WrongEndpoint:
        """The error for a model that another endpoint serves, with the caller's models for this one."""
        names = ", ".join(self._services.catalog.names(key.may_use, self._task))
        none = "This key may use no model for this endpoint."
        advice = f"Models of this key for this endpoint: {names}." if names else none
        return WrongEndpoint(f"'{model.name}' is served by {model.task.paths}, not here. {advice}", param="model")

    async def _key(self, headers: Mapping[bytes, bytes], network: str) -> KeyRecord:
        """The caller's key. Raises the errors of `authenticate`, an AuthError at the pace of the caller's network."""
        try:
            return await authenticate(self._format.authorization(headers), self._services.keyring)
        except AuthError:
            await self._shares.refused(network)
            raise

    def _room_for(
        self, headers: Mapping[bytes, bytes], organization_id: str
    ) -> contextlib.AbstractAsyncContextManager[Body | None]:
        """Room for a body. A small body needs none; a body of unknown length takes room as it arrives."""
        length = headers.get(b"content-length", b"")
        if not length.isdigit():
            return self._room.of(organization_id)
        if LARGE_BYTES <= int(length) <= self._max_body_bytes:
            return self._room.of(organization_id, int(length))
        return _NOTHING

    async def _body(
        self,
        headers: Mapping[bytes, bytes],
        receive: Receive,
        connection: ClientConnection,
        organization_id: str,
        room: Body | None,
    ) -> bytes:
        """Read the body and check its structure. room: the body's room, which grows with it; None if it needs none."""
        feed, shares = BodyShape(self._config).feed, self._shares
        size_bytes = 0

        def check(chunk: bytes) -> None:
            nonlocal size_bytes
            size_bytes += len(chunk)
            if size_bytes < LARGE_BYTES:
                feed(chunk)
                return
            with shares.charged(organization_id):
                feed(chunk)

        async def pause(size_bytes: int) -> None:
            if size_bytes >= LARGE_BYTES:
                if room is not None:
                    await room.hold(size_bytes)
                await shares.turn(organization_id)

        await shares.turn(organization_id)
        body = await whole_body(headers, receive, self._max_body_bytes, check, pause)
        connection.listen()
        return body

    def _format_of(self, body: bytes) -> WireFormat[Any]:
        for is_theirs, other in self._others:
            if is_theirs(body):
                return other
        return self._format

    async def _asked(self, arrival: Arrival, body: bytes, organization_id: str) -> Asked:
        """Decode the body, and set the arrival's format to the body's."""

        def decode() -> Asked:
            arrival.wire_format = self._format_of(body)
            decoded: Asked = arrival.wire_format.decode(body)
            return decoded

        asked = await self._in_turn(len(body), organization_id, decode)
        if len(body) > LONG_BYTES:
            # `sleep(0)` would run neither timers nor sockets
            await asyncio.sleep(LET_IN_S)
        return asked

    async def _in_turn(self, size_bytes: int, organization_id: str, work: Callable[[], WorkT]) -> WorkT:
        """Do work on a client's bytes. If they are many, wait for the organization's turn first, and charge the work
        to its share of the event loop."""
        if size_bytes < LARGE_BYTES:
            return work()
        await self._shares.turn(organization_id)
        with self._shares.charged(organization_id):
            return work()


class _InTime:
    """Context that raises PreparationTimeout after `timeout_s`. No reservation exists yet, so no limit of the caller
    ends slow work here. It works like `asyncio.timeout`, at a third of the cost."""

    __slots__ = ("_fired", "_task", "_timeout_s", "_timer")

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._fired = False

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._timer = loop.call_later(self._timeout_s, self._late)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._fired and self._task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise PreparationTimeout(
                f"The prompt's tokens could not be counted within {self._timeout_s:g} s. Try again, or send a shorter "
                "one.",
                retry_after_s=1,
            ) from None

    def _late(self) -> None:
        self._fired = True
        self._task.cancel()


def _loop(headers: Mapping[bytes, bytes]) -> EngineLoop:
    """The error for a request that this deployment sent to an engine but received itself."""
    host = shortened(repr(headers.get(b"host", b"").decode("latin-1")))
    return EngineLoop(
        f"This request comes from this deployment itself: a pool has a replica at {host}, which is the gateway's own "
        "address. Give that replica the URL of its engine."
    )


def response_of(arrival: Arrival, connection: ClientConnection) -> ResponseWriter:
    """A response in the client's format, as far as it is known."""
    return ResponseWriter(connection, arrival.wire_format, arrival.request_id)
