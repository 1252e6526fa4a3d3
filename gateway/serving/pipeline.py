"""The path of one request, from reservation to settled books. Read `run`, `_serve`, `_attempt`, `_generate` in order.

    run        client watched; errors become answers; metrics and trace at the end
    _serve     reserve … settle                          once per request
    _attempt   journal opened … closed, lease … release  once per attempt
    _generate  engine's stream opened, relayed, closed

Each level gives back in the same function what it took. The frames that say "finished" are sent only after everything
has been given back: a client that has its [DONE] finds its slot free and its usage on disk.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from contracts.errors import (
    EngineFailed,
    EngineTimeout,
    InternalError,
    LimitError,
    NoEngine,
    Overloaded,
    ServiceError,
    SlipstreamError,
)
from contracts.lease import Lease, LeaseEnd, LeaseRequest
from contracts.phases import Phase
from contracts.usage import Finish
from engines.drivers.base import Driver
from engines.http.engine_connections import EngineConnections, Opening
from engines.http.engine_stream import EngineStream
from gateway.config import GatewayConfig
from gateway.http.disconnect import ClientGone, ClientWatch, Disconnectable
from gateway.http.response import ResponseWriter
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.attempt import AttemptRecord
from gateway.serving.collaborators import Drivers, Limits, Router, TraceLog, UsageJournal
from gateway.serving.cost import RequestCosts
from gateway.serving.fallback_usage import count
from gateway.serving.idle_timeout import IdleTimeouts, Wait
from gateway.serving.request import InferenceRequest
from gateway.serving.stream import StreamForwarder
from gateway.wire.errors import Headers
from gateway.wire.format import Transcoder
from gateway.wire.usage_tracker import UsageTracker

logger = logging.getLogger(__name__)

MAX_ERROR_BYTES = 65_536


class RequestPipeline:
    """Serves requests; holds what they all share and no request's state."""

    def __init__(
        self,
        config: GatewayConfig,
        limiter: Limits,
        prices: RequestCosts,
        journal: UsageJournal,
        router: Router,
        connections: EngineConnections,
        drivers: Drivers,
        sweeper: IdleTimeouts,
        metrics: GatewayMetrics,
        traces: TraceLog,
    ) -> None:
        self._config = config
        self._limiter = limiter
        self._prices = prices
        self._journal = journal
        self._router = router
        self._connections = connections
        self._driver = drivers
        self._sweeper = sweeper
        self._metrics = metrics
        self._traces = traces

    async def run(self, call: InferenceRequest, channel: Disconnectable, answer: ResponseWriter) -> None:
        """Serve one prepared request to its end. Raises nothing: failures become answers and log lines."""
        wait = Wait()
        tier = call.generation.tier.value
        self._sweeper.add(wait)
        self._metrics.began(tier)
        try:
            async with ClientWatch(channel) as watch:
                await self._answer(call, answer, watch, wait)
        except ClientGone:
            answer.error_code = answer.error_code or "client_gone"
        finally:
            self._sweeper.remove(wait)
            call.clock.end(Phase.STREAM)
            self._observe(call, answer)

    async def _answer(self, call: InferenceRequest, answer: ResponseWriter, watch: ClientWatch, wait: Wait) -> None:
        """`_serve`, with its last frames on success and its error otherwise."""
        try:
            closing = await self._serve(call, answer, watch, wait)
            if answer.started:
                answer.end_stream(closing)
            else:
                answer.headers.append(_server_timing(call))
                answer.whole(200, closing)
        except SlipstreamError as error:
            answer.fail(error, _rate_headers(call, error))
        except Exception:
            logger.exception("request %s failed", call.request_id)
            answer.fail(InternalError(f"Internal error. Quote request {call.request_id} when you report it."))

    async def _serve(self, call: InferenceRequest, answer: ResponseWriter, watch: ClientWatch, wait: Wait) -> bytes:
        """Reserve, run, settle. Returns what to send last."""
        reservation = await self._limiter.reserve(
            call.request_id, call.key.caller, call.generation.tier, call.key.levels, self._prices.most(call)
        )
        if reservation.state is not None:
            answer.headers.extend(call.format.rate_headers(reservation.state))
        try:
            return await self._attempts(call, answer, watch, wait)
        finally:
            await self._limiter.settle(reservation, call.used, refund_request=not call.ran)

    async def _attempts(self, call: InferenceRequest, answer: ResponseWriter, watch: ClientWatch, wait: Wait) -> bytes:
        """Try engines until one has begun to answer; the first failure is the one reported."""
        failure: ServiceError | None = None
        failed_on: list[str] = []
        for attempt in range(self._config.max_attempts):
            books = AttemptRecord(call, attempt)
            try:
                return await self._attempt(call, books, tuple(failed_on), answer, watch, wait)
            except (EngineFailed, EngineTimeout, Overloaded, NoEngine) as error:
                if books.reached or books.engine is None:
                    raise failure or error from None
                failure = failure or error
                failed_on.append(books.engine.replica_id)
        assert failure is not None
        raise failure

    async def _attempt(
        self,
        call: InferenceRequest,
        books: AttemptRecord,
        failed_on: tuple[str, ...],
        answer: ResponseWriter,
        watch: ClientWatch,
        wait: Wait,
    ) -> bytes:
        """One entry in the journal, one lease."""
        self._journal.opened(books.opened)
        call.clock.end(Phase.LIMIT)
        try:
            lease = await self._router.acquire(self._ask(call, books, failed_on))
            call.clock.end_split(Phase.ROUTE, Phase.QUEUE, lease.queued_s)
            books.granted_s = call.clock.total_s
            try:
                self._journal.placed(books.placed(lease.engine))
                closing = await self._generate(call, books, lease, answer, watch, wait)
                books.status = 200
                return closing
            except SlipstreamError as error:
                books.failed(error)
                if books.engine_fault:
                    logger.warning("request %s on %s: %s", call.request_id, lease.engine.replica_id, error)
                raise
            finally:
                self._router.release(
                    LeaseEnd(lease.lease_id, books.finish, books.engine_usage, engine_fault=books.engine_fault)
                )
        except SlipstreamError as error:
            books.error_code = error.code
            books.status = answer.status or call.format.error_status(error)
            raise
        finally:
            self._metrics.attempted(call.generation.tier.value, books.finish.value, books.outcome.value)
            if books.taken:
                call.used = self._prices.used(call, books.worked_off, billed=books.billed)
                call.ran = True
            if books.billed:
                self._metrics.observe_usage(call.generation.tier.value, books.usage)
            await self._journal.closed(books.closed())

    async def _generate(
        self,
        call: InferenceRequest,
        books: AttemptRecord,
        lease: Lease,
        answer: ResponseWriter,
        watch: ClientWatch,
        wait: Wait,
    ) -> bytes:
        """Open the engine's stream and pass it on. Returns the bytes that end the answer."""
        engine, generation = lease.engine, call.generation
        driver = self._driver(engine)
        request = driver.generate(msgspec.structs.replace(generation, request_id=books.engine_request_id), engine.model)
        seen = UsageTracker(
            generation.choices,
            generation.choices // generation.sampling.n,
            salted_cache=driver.capabilities.salted_cache,
        )
        transcoder = call.format.relay if generation.stream else call.format.collect
        relay = transcoder(call.request_id, generation, seen, driver.error)
        opening = self._connections.opening(
            engine.url, request, self._config.connect_timeout_s, books.engine_request_id, engine.pool
        )
        try:
            stream = await opening.response(self._config.first_event_timeout_s)
            books.sent = True
            if stream.status != 200:
                books.turned_away = True
                raise driver.error(stream.status, await _rest_of(stream))
            await self._pass_on(call, books, lease, stream, relay, seen, answer, watch, wait)
            if not relay.complete:
                raise relay.error or EngineFailed("The engine ended its answer early.", retry_after_s=1)
            await count(call, books, seen, Finish.COMPLETE)
        except asyncio.CancelledError:
            await self._abandon(call, books, driver, opening, relay, seen)
            raise
        finally:
            opening.close()
            books.sent = opening.sent
            if not books.ended:
                gone = books.finish is Finish.CLIENT_GONE
                await count(call, books, seen, Finish.CLIENT_GONE if gone else Finish.ENGINE_ERROR)
            call.clock.end(Phase.DECODE if books.reached else Phase.ENGINE)
        return relay.closing()

    async def _pass_on(
        self,
        call: InferenceRequest,
        books: AttemptRecord,
        lease: Lease,
        stream: EngineStream,
        relay: Transcoder,
        seen: UsageTracker,
        answer: ResponseWriter,
        watch: ClientWatch,
        wait: Wait,
    ) -> None:
        """Read events until the engine ends; every event leaves before the next is waited for."""
        config, silent = self._config, False

        def engine_silent() -> None:
            nonlocal silent
            silent = True
            stream.close()

        def begun() -> None:
            self._first_event(call, books, lease, relay, seen, answer)

        def text_seen() -> None:
            call.clock.end(Phase.FIRST_TOKEN)

        wait.begin(config.first_event_timeout_s, engine_silent)
        try:
            await StreamForwarder(stream, relay, answer, begun, text_seen).run(
                wait, config.event_timeout_s, engine_silent, config.client_stall_timeout_s, watch.cut
            )
        except EngineFailed:
            if silent:
                raise EngineTimeout("The engine stopped answering.", retry_after_s=1) from None
            raise
        finally:
            wait.end()

    def _first_event(
        self,
        call: InferenceRequest,
        books: AttemptRecord,
        lease: Lease,
        relay: Transcoder,
        seen: UsageTracker,
        answer: ResponseWriter,
    ) -> None:
        """The engine has begun: our headers may go, with what is known of the phases by now."""
        if relay.error is not None and not relay.events:
            raise relay.error
        books.reached = True
        call.clock.end(Phase.ENGINE)
        usage = seen.total
        self._router.first_token(
            lease.lease_id, call.clock.total_s - books.granted_s, usage.cached_tokens if usage else 0
        )
        if call.generation.stream:
            answer.headers.append(_server_timing(call))
            answer.start_stream()
            books.status = answer.status

    async def _abandon(
        self,
        call: InferenceRequest,
        books: AttemptRecord,
        driver: Driver,
        opening: Opening,
        relay: Transcoder,
        seen: UsageTracker,
    ) -> None:
        """The client has gone: stop the engine and learn how much it had generated.

        An engine that stops by id still sends its final count on the open stream, and so does any that had finished.
        One that only stops when the connection closes leaves what was seen or delivered, a lower bound.
        """
        books.finish = Finish.CLIENT_GONE
        assert books.engine is not None
        url, pool = books.engine.url, books.engine.pool
        abort = driver.abort(books.engine_request_id, call.generation.choices)
        if not opening.sent or books.turned_away or (abort is None and not relay.finished):
            return
        try:
            async with asyncio.timeout(self._config.abort_drain_s):
                if abort is not None and not relay.finished:
                    await self._connections.fetch(url, abort, self._config.abort_drain_s, pool_name=pool)
                stream = await opening.response(self._config.abort_drain_s)
                books.turned_away = stream.status != 200
                while data := await stream.read():
                    relay.feed(data)
                if seen.final and seen.total is not None:
                    books.finished(seen.total, Finish.CLIENT_GONE)
                elif ask := driver.usage_by_id(books.engine_request_id):
                    status, body = await self._connections.fetch(url, ask, self._config.abort_drain_s, pool_name=pool)
                    if (usage := driver.parse_usage_by_id(status, body)) is not None:
                        books.finished(usage, Finish.CLIENT_GONE)
        except (TimeoutError, ServiceError) as error:
            logger.warning("request %s: engine %s did not confirm the abort: %s", call.request_id, url, error)

    def _ask(self, call: InferenceRequest, books: AttemptRecord, failed_on: tuple[str, ...]) -> LeaseRequest:
        generation = call.generation
        chain = call.prepared.chain
        return LeaseRequest(
            lease_id=books.engine_request_id,
            request_id=call.request_id,
            attempt=books.attempt,
            tier=generation.tier,
            model=generation.model,
            prompt_tokens=call.prepared.prompt_tokens,
            max_output_tokens=generation.choices * generation.sampling.max_tokens,
            deadline_s=self._config.queue_deadline_s[generation.tier],
            organization_id=call.key.caller.organization_id,
            prefix_kind=chain.kind,
            prefix_hashes=chain.hashes,
            excluded_replicas=failed_on,
            session_id=f"{call.key.caller.organization_id}:{session}" if (session := call.prepared.session) else "",
        )

    def _observe(self, call: InferenceRequest, answer: ResponseWriter) -> None:
        tier = call.generation.tier.value
        self._metrics.ended(tier, call.endpoint, answer.status or 499, answer.error_code or "none")
        durations_s, ttft_s = call.clock.durations_s, None
        if Phase.FIRST_TOKEN in durations_s:
            ttft_s = call.clock.total_s - durations_s.get(Phase.DECODE, 0.0) - durations_s.get(Phase.STREAM, 0.0)
        self._metrics.observe_phases(tier, durations_s, ttft_s)
        self._traces.add(call, answer)


async def _rest_of(stream: EngineStream) -> bytes:
    """An error's body, as much of it as is worth reading."""
    body = b""
    while len(body) < MAX_ERROR_BYTES and (data := await stream.read()):
        body += data
    return body


def _server_timing(call: InferenceRequest) -> tuple[bytes, bytes]:
    """The phases that are over, in the header browsers and curl users know."""
    entries = ", ".join(f"{phase};dur={duration_ms}" for phase, duration_ms in call.clock.as_ms().items())
    return (b"server-timing", entries.encode())


def _rate_headers(call: InferenceRequest, error: SlipstreamError) -> Headers:
    """A refusal by a limit says where its counters stand."""
    state = getattr(error, "state", None) if isinstance(error, LimitError) else None
    return call.format.rate_headers(state) if state is not None else []
