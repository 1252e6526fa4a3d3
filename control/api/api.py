"""Runs one request of the admin API. Every operation takes the same steps, in this order:

    authenticate and authorize (`admit`) → kept response? → service, in a transaction → audit rows → response (`run`)

Between `admit` and `run`, Litestar reads the parameters (control/api/route_handlers.py).

As for all other requests, gateway/http/routing.py converts errors to OpenAI-shaped bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg
import msgspec

from contracts.errors import IdempotencyInFlight, InternalError, InvalidField, InvalidKey, ServiceError, SlipstreamError
from control.api.call import AdminCall, CounterReader, KnownModels, NoCounterReader
from control.api.config import AdminConfig
from control.api.connection_queue import OPERATORS, CallerKeys, ConnectionQueue, key_of
from control.api.events.streams import EventStreams
from control.api.fair_queue import QueueKey
from control.api.idempotency import Idempotency
from control.api.operation import Operation
from control.api.principal import UNKNOWN_KEY, Principal, authenticate, confirm, signed_in
from control.api.read_places import ReadPlaces
from control.api.transaction import recorded
from control.api.unknown_keys import UnknownKeys
from control.api.write_rate import WriteRate
from control.router_view.live_fleet import FleetReader, NoFleetReader
from control.sessions.config import ConsoleConfig
from control.sessions.token import SessionToken
from control.slices.startable import NoSlices, SliceCheck
from gateway.auth import keys
from gateway.wire.errors import body_of, status_of
from storage.engine import AWAY, FAILURES, borrow, close, lazy_pool

REPORT_SHARE = 0.8
"""Share of a request's time that an expensive read may take; the refusal then advises how to narrow it. PostgreSQL
cancels the statement after the same time, even if its request has ended."""
LIMIT_STATEMENTS = "SELECT set_config('statement_timeout', $1, true)"

_log = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class AdminRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it arrived over HTTP."""

    request_id: str
    principal: Principal
    url: str
    """Path and query as sent, for comparing requests."""
    body: bytes
    """The body as sent, for the same comparison."""
    idempotency_key: str | None
    arguments: dict[str, Any]
    """Arguments of the operation."""
    if_match: str | None = None
    """The If-Match header, if the operation takes it."""


class AdminAnswer(msgspec.Struct, frozen=True):
    """The response. replayed: whether it repeats the response to an earlier request. version: the version of the fleet
    that it describes, if any."""

    status: int
    body: bytes
    replayed: bool = False
    version: int | None = None


class AdminApi:
    """One per gateway process; owns a small pool of connections."""

    def __init__(
        self,
        url: str,
        pepper: bytes,
        config: AdminConfig,
        fleet: KnownModels,
        counters: CounterReader | None = None,
        slices: SliceCheck | None = None,
        console: ConsoleConfig | None = None,
        router: FleetReader | None = None,
        replicas: Callable[[], object] = tuple,
    ) -> None:
        """counters: reader of the limits' counters; without it, requests for them are refused. slices: check of slices'
        names; by default, none is known. console: settings of console sessions. router: the router's client, if any.
        replicas: returns every engine, as the router last reported."""
        self._url = url
        self._pepper = pepper
        self._config = config
        self._fleet = fleet
        self._counters = counters or NoCounterReader()
        self._slices = slices or NoSlices()
        self._console = console or ConsoleConfig()
        self._router = router or NoFleetReader()
        self._unknown = UnknownKeys()
        self._reports = ReadPlaces(config.connections, config.organization_reports)
        self._queue = ConnectionQueue(config.connections)
        self._pool: asyncpg.Pool[Any] | None = None
        self.callers = CallerKeys()
        self.writes = WriteRate(config.organization_writes_per_second, config.organization_writes_per_day)
        self.events = EventStreams(config.events, self._asked_by_us, self._console.session_idle_s, replicas)

    async def start(self) -> None:
        """Create the pool, which connects on first use."""
        self._pool = await lazy_pool(
            self._url,
            size=self._config.connections,
            connect_timeout_s=5.0,
            command_timeout_s=self._config.timeout_s,
            name="slipstream-admin",
            init=prepare,
        )

    async def stop(self) -> None:
        """Close the pool. Requests in progress fail. Idempotent."""
        await self.events.stop()
        pool, self._pool = self._pool, None
        await close(pool, 1.0)

    @property
    def _longest_report_s(self) -> float:
        return self._config.timeout_s * REPORT_SHARE

    @property
    def max_body_bytes(self) -> int:
        """The largest body that a request may have."""
        return self._config.max_body_bytes

    @property
    def currency(self) -> str:
        """The currency of all amounts of the deployment."""
        return self._config.currency

    async def admit(self, operation: Operation, secret: str, network: str = "") -> Principal:
        """Look up the key's principal, before the request's body is read. network: the request's origin.

        Raises AuthError (PermissionDenied if the role may not run the operation), and RateLimited for one change too
        many. An unknown key costs one query; later requests with it are refused without the database.
        """
        keys.check(secret, keys.ADMIN_PREFIX)
        key_hash = keys.hash_of(secret, self._pepper)
        if key_hash in self._unknown:
            raise InvalidKey(UNKNOWN_KEY)

        async def ask(connection: asyncpg.Connection[Any]) -> Principal:
            return await authenticate(connection, key_hash)

        try:
            principal = await self.connected(operation.name, ask, self.callers.find(key_hash, network))
        except InvalidKey:
            self._unknown.add(key_hash)
            raise
        return self._admitted(operation, principal, key_hash)

    async def admit_session(
        self, operation: Operation, token: SessionToken, network: str = "", *, used: bool
    ) -> Principal:
        """Look up the principal of a console session. used: whether a person is active, which restarts the session's
        idle time. Raises like `admit`."""

        async def ask(connection: asyncpg.Connection[Any]) -> Principal:
            return await signed_in(connection, token.hash, timedelta(seconds=self._console.session_idle_s), used=used)

        principal = await self.connected(operation.name, ask, self.callers.find(token.hash, network))
        return self._admitted(operation, principal, token.hash)

    def _admitted(self, operation: Operation, principal: Principal, secret_hash: bytes) -> Principal:
        self.callers.learn(secret_hash, principal)
        principal.require(operation.permission, operator_only=operation.operator_only)
        if operation.removes:  # a stolen key must not exhaust the rate limit of its own revocation
            self.writes.take_of_member(principal)
        elif operation.method != "GET":
            self.writes.take(principal)
        return principal

    def call(
        self,
        connection: asyncpg.Connection[Any],
        principal: Principal,
        request_id: str,
        *,
        if_match: str | None = None,
    ) -> AdminCall:
        """Build the call object that a service receives."""
        return AdminCall(
            connection,
            principal,
            request_id,
            self._pepper,
            self._fleet,
            self._config,
            self._counters,
            self._slices,
            if_match=if_match,
            console=self._console,
            router=self._router,
        )

    async def run(self, operation: Operation, request: AdminRequest) -> AdminAnswer:
        """Run the operation. Raises SlipstreamError: RateLimited for one expensive read too many, ServiceError while
        the database is unreachable or all connections are in use."""
        if operation.remote:
            return AdminAnswer(operation.status, msgspec.json.encode(await operation.run(None, request.arguments)))
        until_s = asyncio.get_running_loop().time() + self._longest_report_s if operation.expensive else None

        async def answer(connection: asyncpg.Connection[Any]) -> AdminAnswer:
            return await self._answer(connection, operation, request, until_s)

        with self._reports.place(request.principal) if operation.expensive else contextlib.nullcontext():
            return await self.connected(request.request_id, answer, key_of(request.principal))

    async def _asked_by_us(self, what: str, work: Callable[[asyncpg.Connection[Any]], Awaitable[ResultT]]) -> ResultT:
        return await self.connected(what, work, OPERATORS)

    async def connected(
        self, what: str, work: Callable[[asyncpg.Connection[Any]], Awaitable[ResultT]], key: QueueKey
    ) -> ResultT:
        """Run `work` on a connection of the pool, within the time that a request may take. key: the caller's queue key.

        Raises like `work`; ServiceError without the database; RateLimited or ServiceError on a timeout in the queue.
        """
        if self._pool is None:
            raise ServiceError("This instance is shutting down; try again.", retry_after_s=1)
        clock = asyncio.get_running_loop().time
        began_s, granted_s = clock(), math.inf
        failure: SlipstreamError | None = None
        try:
            async with asyncio.timeout(self._config.timeout_s), self._queue.connection(key):
                granted_s = clock()
                async with borrow(self._pool) as connection:
                    try:
                        return await work(connection)
                    except SlipstreamError as error:
                        failure = error  # raised below: `borrow` would discard a healthy connection
        except AWAY as error:  # any other error of the database is a defect in Slipstream
            if isinstance(error, TimeoutError) and granted_s - began_s > self._config.timeout_s / 2:
                _log.warning("admin request %s: no connection came free in time", what)
                raise self._queue.refusal(key) from None
            _log.warning("admin request %s: the database does not answer: %r", what, error)
            raise ServiceError("The database cannot be reached at the moment; try again.", retry_after_s=1) from None
        raise failure

    async def _answer(
        self, connection: asyncpg.Connection[Any], operation: Operation, request: AdminRequest, until_s: float | None
    ) -> AdminAnswer:
        call = self.call(connection, request.principal, request.request_id, if_match=request.if_match)
        if request.idempotency_key is None or operation.method != "POST":  # other methods are idempotent by themselves
            return await self._work(operation, call, request.arguments, None, until_s)
        key = Idempotency.check(request.idempotency_key)
        claim = Idempotency(request.principal.id, key, self._pepper, (operation.method, request.url, request.body))
        kept = await claim.claim(connection)
        if kept is not None:
            return AdminAnswer(kept.status, kept.body, replayed=True)
        try:
            return await self._work(operation, call, request.arguments, claim, until_s)
        except IdempotencyInFlight:
            raise
        except SlipstreamError as error:
            if status_of(error) >= 500:
                await claim.release(connection)
            else:
                await claim.keep(connection, status_of(error), body_of(error))
            raise
        except Exception:
            # This includes errors of the database. If it is unreachable, the key becomes free after a minute.
            with contextlib.suppress(*FAILURES):
                await claim.release(connection)
            raise

    async def _work(
        self,
        operation: Operation,
        call: AdminCall,
        arguments: dict[str, Any],
        claim: Idempotency | None,
        until_s: float | None,
    ) -> AdminAnswer:
        """Run the handler and write its audit rows and the kept answer in one transaction. until_s: the deadline of an
        expensive read, by the loop's clock."""
        try:
            async with (
                recorded(call, call.principal.actor(call.request_id)),
                asyncio.timeout_at(until_s),
            ):
                if operation.expensive:
                    await call.connection.execute(LIMIT_STATEMENTS, str(int(self._longest_report_s * 1e3)))
                if operation.body is not None:  # the body may have taken a minute to arrive
                    call.principal = await confirm(call.connection, call.principal)
                    call.principal.require(operation.permission, operator_only=operation.operator_only)
                result = await operation.run(call, arguments)
                body = b"" if operation.status == 204 else msgspec.json.encode(result)
                if claim is not None:
                    await claim.keep(call.connection, operation.status, body)
                if operation.method != "GET" and not call.changes and not call.dry_run:
                    raise InternalError(f"{operation.name} changed something without an audit row")
        except (asyncpg.QueryCanceledError, TimeoutError):
            if not operation.expensive:
                raise
            _log.warning("admin request %s: %s took too long", call.request_id, operation.name)
            raise ServiceError(
                f"This took the database longer than {self._longest_report_s:g} s; {call.to_narrow}.",
                retry_after_s=60,
            ) from None
        except asyncpg.DataError as error:  # no check above refused the value; the transaction is rolled back
            _log.warning("admin request %s: a value does not fit: %s", call.request_id, error)
            raise InvalidField("A value is out of range, so it cannot be stored or compared.") from None
        return AdminAnswer(operation.status, body, version=call.fleet_version)


async def prepare(connection: asyncpg.Connection[Any]) -> None:
    """Make the connection decode JSON columns to values, and write JSON text as it is."""
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=str, decoder=msgspec.json.decode)
