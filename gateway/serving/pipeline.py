"""The path of one request, from reservation to settled books. Read `run`, `_serve`, `_attempt`, `_generate` in order.

    run        client watched; errors become answers; metrics and trace at the end
    _serve     reserve … settle                          once per request
    _attempt   journal opened … closed, lease … release  once per attempt
    _generate  engine's stream opened, relayed, closed

Two things end a request early: its client leaves, which cancels all of it, or types on, which ends the wait for a
place and the engine's answer, and nothing else.

Each level gives back in the same function what it took. The frames that say "finished" are sent only after everything
has been given back: a client that has its [DONE] finds its slot free and its usage on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time

from contracts.errors import (
    AdapterUnavailable,
    EngineFailed,
    EngineTimeout,
    InternalError,
    NoEngine,
    Overloaded,
    RouterUnavailable,
    ServiceError,
    SlipstreamError,
)
from contracts.lease import Engine, Lease
from contracts.phases import Phase
from contracts.service_class import yields
from contracts.usage import Finish, Usage
from engines.drivers.base import Driver
from engines.drivers.error_bodies import TransferFailed
from engines.http.engine_connections import EngineConnections, Opening
from gateway.config import GatewayConfig
from gateway.http.disconnect import ClientGone, ClientWatch, Disconnectable
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.limits.refusal import CounterReached
from gateway.limits.reservations import Reservation
from gateway.observability.file_metrics import FileMetrics
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.adapter_loader import AdapterLoader
from gateway.serving.attempt import Attempt, Client, unanswered
from gateway.serving.cascade import Cascades
from gateway.serving.collaborators import (
    CompletionTexts,
    Drivers,
    PrefixLog,
    Router,
    TraceLog,
    UsageJournal,
    UsageLimiter,
)
from gateway.serving.continuations import Continuations
from gateway.serving.engine_refusal import refusal
from gateway.serving.fallback_usage import count
from gateway.serving.file_history import FileHistory
from gateway.serving.first import First
from gateway.serving.first_attempt import FirstAttempt
from gateway.serving.full_engines import FullEngines
from gateway.serving.heartbeat import Heartbeat
from gateway.serving.idle_timeout import IdleTimeouts, Wait
from gateway.serving.prefill import PrefillRequest, bootstrap
from gateway.serving.recording import End, Recording
from gateway.serving.request import InferenceRequest
from gateway.serving.request_costs import RequestCosts, used
from gateway.serving.shadow_copies import Shadow, ShadowCopies
from gateway.serving.stream import StreamForwarder
from gateway.serving.warm_ups import WarmUps
from gateway.supersession.in_flight_request import SUPERSEDED, InFlightRequest, Superseded
from gateway.supersession.supersession import Supersession
from gateway.wire.errors import Headers

logger = logging.getLogger(__name__)

MOST_BROKEN = 2
"""Engines that may fail while they have one request, whatever `max_attempts` allows. Not 1: a crash takes everybody's
requests along, of which at most one was its cause, and the others are to be served elsewhere. That of a cascade's small
model is not among them: whatever becomes of it, the large model is asked."""
TRIED_AGAIN = (EngineFailed, EngineTimeout, Overloaded, NoEngine, AdapterUnavailable)
"""Failures that another engine may not have."""
SUPERSEDED_BY = b"x-slipstream-superseded-by"
"""Says which request has taken a request's place."""
ANSWERED_BY = b"x-slipstream-answered-by"
"""Says which model's answer it is, where a smaller one may have given it."""


class RequestPipeline:
    """Serves requests; holds what they all share and no request's state."""

    def __init__(
        self,
        config: GatewayConfig,
        limiter: UsageLimiter,
        costs: RequestCosts,
        journal: UsageJournal,
        router: Router,
        connections: EngineConnections,
        drivers: Drivers,
        idle_timeouts: IdleTimeouts,
        metrics: GatewayMetrics,
        traces: TraceLog,
        files: FileHistory,
        supersession: Supersession,
        file_metrics: FileMetrics,
        prefixes: PrefixLog,
        texts: CompletionTexts,
        shadow: Shadow,
        cascades: Cascades,
    ) -> None:
        self._config = config
        self._limiter = limiter
        self._costs = costs
        self._journal = journal
        self._router = router
        self._connections = connections
        self._driver = drivers
        self._idle_timeouts = idle_timeouts
        self._metrics = metrics
        self._traces = traces
        self._files = files
        self._supersession = supersession
        self._prefixes = prefixes
        self._texts = texts
        self._cascades = cascades
        self._full_engines = FullEngines()
        self._adapters = AdapterLoader(connections, metrics, config.adapter_load_timeout_s)
        self._continuations = Continuations(metrics, config.client_stall_timeout_s)
        self._warm_ups = WarmUps(self._compute_ahead, idle_timeouts, file_metrics)
        self._shadow_copies = ShadowCopies(self._compute_ahead, idle_timeouts, shadow)

    async def stop(self) -> None:
        """End what no client waits for, and forget what was kept for the next one."""
        await self._warm_ups.stop()
        await self._shadow_copies.stop()
        self._continuations.stop()
        await self._adapters.stop()

    async def run(self, request: InferenceRequest, connection: Disconnectable, response: ResponseWriter) -> None:
        """Serve one prepared request to its end. Raises nothing: failures become answers and log lines."""
        wait = Wait()
        self._idle_timeouts.add(wait)
        if request.purpose is None:
            self._metrics.began(request.tier)
            self._warm_ups.arrived(request.prepared)
            self._shadow_copies.arrived(request)
        try:
            async with ClientWatch(connection) as watch:
                with (
                    self._continuations.joined(request) as shared_id,
                    self._supersession.registered(request.request_id, request.keystroke, spared=shared_id) as in_flight,
                ):
                    await self._answer(request, Client(response, watch, wait, in_flight))
        except ClientGone:
            response.error_code = response.error_code or "client_gone"
        finally:
            self._idle_timeouts.remove(wait)
            request.clock.end(Phase.STREAM)
            self._observe(request, response)
            self._shadow_copies.ended(request, response)

    async def _answer(self, request: InferenceRequest, client: Client) -> None:
        """`_serve`, with its last frames on success and its error otherwise."""
        response = client.response
        try:
            closing = await self._serve(request, client)
            if request.superseded_by is not None:
                response.error_code = SUPERSEDED
                response.headers.append((SUPERSEDED_BY, request.superseded_by.encode()))
                if request.generation.stream:
                    response.start_stream()
            if response.started:
                response.end_stream(closing)
            else:
                response.headers.append(server_timing(request.clock))
                response.whole(200, closing)
        except SlipstreamError as error:
            response.fail(error, _rate_headers(request, error))
        except Exception:
            logger.exception("request %s failed", request.request_id)
            response.fail(InternalError(f"Internal error. Quote request {request.request_id} when you report it."))

    async def _serve(self, request: InferenceRequest, client: Client) -> bytes:
        """Reserve, run, settle. Returns what to send last."""
        reservation = await self._reserve(request, client.in_flight)
        if reservation.state is not None:
            client.response.headers.extend(request.wire_format.rate_headers(reservation.state))
        if request.generation.stream and request.wire_format.heartbeat:
            client.wait.heartbeat = Heartbeat(client.response, request.clock, time.monotonic())
        try:
            self._supersession.supersede_older(client.in_flight)
            if request.first is not None and (closing := await self._first(request, request.first, client)) is not None:
                return closing
            return await self._attempts(request, client)
        except Superseded:
            return unanswered(request)
        finally:
            await self._limiter.settle(reservation, request.used, refund_request=not request.ran)

    async def _reserve(self, request: InferenceRequest, in_flight: InFlightRequest) -> Reservation:
        """The reservation. Where only a place is missing, and what the request was typed on holds it, that is ended for
        it. What any other limit refuses ends nothing: the answer before is the only one its user gets."""
        most = self._costs.most(request)
        asked = request.request_id, request.caller, request.generation.tier, request.key.levels, most
        try:
            return await self._limiter.reserve(*asked)
        except CounterReached as refusal:
            short, drain_s = refusal.concurrency_short, self._config.abort_drain_s
            if not await self._supersession.make_room(in_flight, short, drain_s):
                raise
        return await self._limiter.reserve(*asked)

    async def _first(self, request: InferenceRequest, first: First, client: Client) -> bytes | None:
        """The small model's answer, if it is whole, in time and sure enough. Whatever else becomes of it, short of the
        client's leaving, is None, and the large model's turn."""
        attempt = FirstAttempt(request, client, first)
        try:
            async with asyncio.timeout(first.cascade.timeout_s) as attempt.deadline:
                closing = await self._attempt(attempt)
        except TimeoutError:
            if attempt.judgement == "failed":
                attempt.judgement = "late"
            return None
        except SlipstreamError as error:
            if attempt.kept:
                raise
            logger.debug("request %s is handed over: %s", request.request_id, error)
            return None
        finally:
            self._cascades.judged(request, attempt)
        attempt.held.give(request, client.response)
        return closing

    async def _attempts(self, request: InferenceRequest, client: Client) -> bytes:
        """Try engines until one has begun to answer; the first failure is the one reported. A request that several
        broke down with is taken no further: it may be what they break down on."""
        failure: ServiceError | None = None
        failed_on: tuple[str, ...] = ()
        broken = 0
        begin = 0 if request.first is None else 1
        if client.wait.heartbeat is not None and request.target.model.cascade is not None:
            client.wait.heartbeat.headers.append((ANSWERED_BY, request.prepared.generation.model.encode()))
        for number in range(begin, begin + self._config.max_attempts):
            attempt = Attempt(request, client, number, failed_on)
            try:
                closing = await self._attempt(attempt)
                if request.superseded_by is None and request.purpose is None:
                    self._warm_ups.answered(attempt)
                    self._shadow_copies.answered(attempt)
                    prepared = request.prepared
                    if request.key.store_prompts and prepared.gap is not None and not prepared.warm_up:
                        self._texts.add(request.request_id, request.caller, prepared.gap, attempt.transcoder.text)
                return closing
            except SlipstreamError as error:
                self._shadow_copies.failed(attempt, error)
                if not isinstance(error, TRIED_AGAIN):
                    raise
                broken += attempt.broke_engine
                failing = attempt.failed_engine
                if attempt.first_event_seen or failing is None or broken == MOST_BROKEN:
                    raise failure or error from None
                failure = failure or error
                if not attempt.adapter_lost:  # the same engine is told to load it once more
                    failed_on += (failing.replica_id,)
        assert failure is not None
        raise failure

    async def _attempt(self, attempt: Attempt) -> bytes:
        """One entry in the journal, one lease; none where another request's generation is the answer."""
        request, config = attempt.request, self._config
        deadline_s = config.queue_deadline_s[request.generation.tier]
        # an engine refuses requests in its own queue before the gateway takes it for a silent one
        attempt.start_within_s = min(deadline_s, config.first_event_timeout_s / 2)
        self._journal.opened(attempt.opened)
        request.clock.end(Phase.LIMIT)
        try:
            if (shared := await self._continuations.follow(attempt)) is not None:
                return shared
            lease = await self._lease(attempt, deadline_s)
            request.clock.end_split(Phase.ROUTE, Phase.QUEUE, lease.queued_s)
            attempt.granted_s = request.clock.total_s
            self._warm_ups.placed(lease.engine.replica_id)
            self._shadow_copies.placed(lease.engine.replica_id)
            if request.purpose is None:
                attempt.placing = self._files.placing(request.prepared)
            try:
                self._journal.placed(attempt.placed(lease.engine))
                await self._load_adapter(attempt, lease)
                closing = await self._generate(attempt, lease)
                attempt.status = 200
                return closing
            except SlipstreamError as error:
                attempt.failed(error)
                if attempt.engine_fault:
                    failing = attempt.failed_engine or lease.engine
                    logger.warning("request %s on %s: %s", request.request_id, failing.replica_id, error)
                elif isinstance(error, Overloaded):
                    self._full_engines.refused(request.request_id, lease.engine, error)
                raise
            finally:
                if attempt.placing is not None and attempt.first_event_seen:
                    self._files.ended(request.prepared, attempt.placing, lease.engine, attempt.engine_usage)
                self._router.release(attempt.lease_end(lease.lease_id))
        except Superseded as newer:
            self._superseded(request, newer, "queue")
            attempt.status = 200
            raise
        except SlipstreamError as error:
            attempt.error_code = error.code
            attempt.status = attempt.client.response.status or request.wire_format.error_status(error)
            raise
        finally:
            attempt.traced()
            self._metrics.attempted(request.tier, attempt.finish.value, attempt.outcome.value)
            request.measurement, request.timing = attempt.measured(), attempt.timing
            if attempt.counts_in_limits:
                request.used = used(attempt.usage_for_limits, attempt.price if attempt.billed else None)
                request.ran = True
            if attempt.billed:
                self._metrics.observe_usage(request.tier, attempt.opened.model, attempt.usage)
                self._warm_ups.billed(attempt)
            await self._journal.closed(attempt.closed())

    async def _load_adapter(self, attempt: Attempt, lease: Lease) -> None:
        """The engine holds what the request needs. The time that takes is none of the engine's to the first token."""
        await self._adapters.require(attempt.generation.adapter, lease, self._driver(lease.engine))
        attempt.granted_s = attempt.request.clock.total_s

    async def _lease(self, attempt: Attempt, deadline_s: float) -> Lease:
        """A place at an engine. A wait for nothing, refused, superseded or left, was one in the router's queue too."""
        try:
            async with attempt.client.in_flight:
                with self._cascades.waiting(attempt) as wait:
                    lease = await self._router.acquire(attempt.lease_request(deadline_s))
                    wait.ended_s = lease.queued_s
                return lease
        except BaseException as error:
            attempt.request.clock.end(Phase.ROUTE if isinstance(error, RouterUnavailable) else Phase.QUEUE)
            raise

    async def _compute_ahead(self, attempt: Attempt) -> None:
        """Have an engine compute a prompt that nobody waits for: in the books, and on nobody's bill. A refusal by the
        router leaves nothing. Raises SlipstreamError."""
        lease = await self._router.acquire(attempt.lease_request(deadline_s=0.0))
        attempt.request.clock.end(Phase.ROUTE)
        attempt.granted_s = attempt.request.clock.total_s
        try:
            self._journal.opened(attempt.opened)
            self._journal.placed(attempt.placed(lease.engine))
            await self._load_adapter(attempt, lease)
            await self._generate(attempt, lease)
            attempt.status = 200
        except SlipstreamError as error:
            attempt.failed(error)
            attempt.error_code, attempt.status = error.code, attempt.request.wire_format.error_status(error)
            raise
        finally:
            self._router.release(attempt.lease_end(lease.lease_id))
            await self._journal.closed(attempt.closed())

    async def _generate(self, attempt: Attempt, lease: Lease) -> bytes:
        """Open the engine's stream and pass it on. Returns the bytes that end the answer."""
        config, engine = self._config, lease.engine
        driver = self._driver(engine)
        attempt.no_drafts = lease.no_drafts
        if lease.prefill is not None:
            attempt.prefill, attempt.bootstrap = lease.prefill, bootstrap(lease.prefill)
        attempt.begin(salted_cache=driver.capabilities.salted_cache, read_error=driver.error)
        if (recording := attempt.request.recording) is not None:
            recording.begin_again()
        opening = self._connections.opening(
            engine.url,
            driver.generate(attempt.generation, engine.model),
            config.connect_timeout_s,
            attempt.engine_request_id,
            engine.pool,
            attempt.trace_headers,
        )
        try:
            if attempt.prefill is None:
                await self._forward(attempt, driver, opening)
            else:
                await self._forward_pair(attempt, attempt.prefill, driver, opening)
            if attempt.transcoder.satisfied:
                if recording is not None:
                    recording.close(End.SUPERSEDED if attempt.request.superseded_by else End.BY_RULE)
                await self._stop(attempt, driver, opening, engine, Finish.COMPLETE)
            elif not attempt.transcoder.complete:
                raise attempt.transcoder.error or EngineFailed("The engine ended its answer early.", retry_after_s=1)
            if not attempt.ended:
                await count(attempt, Finish.COMPLETE)
        except asyncio.CancelledError:
            attempt.finish = Finish.CLIENT_GONE
            if recording is not None and recording.readings and recording.end is None:
                await self._outlive(attempt, opening, recording)
            await self._stop(attempt, driver, opening, engine, Finish.CLIENT_GONE)
            raise
        finally:
            opening.close()
            attempt.sent = opening.sent
            if not attempt.ended:
                gone = attempt.finish is Finish.CLIENT_GONE
                await count(attempt, Finish.CLIENT_GONE if gone else Finish.ENGINE_ERROR)
            attempt.generated()
        closing = attempt.transcoder.finish()
        attempt.judged()
        attempt.request.characters = attempt.transcoder.characters
        return closing

    async def _forward_pair(self, attempt: Attempt, prefill: Engine, driver: Driver, opening: Opening) -> None:
        """`_forward` from the decode engine, while the prefill engine computes the prompt for it."""
        config, prefill_driver = self._config, self._driver(prefill)
        sent = self._connections.opening(
            prefill.url,
            prefill_driver.generate(attempt.generation, prefill.model),
            config.connect_timeout_s,
            attempt.engine_request_id,
            prefill.pool,
            attempt.trace_headers,
        )
        request = PrefillRequest(sent, prefill_driver, config.first_event_timeout_s)
        attempt.prefill_request = request
        try:
            async with request:
                await self._forward(attempt, driver, opening)
        except TransferFailed:
            attempt.prefill_failed = True
            raise
        finally:
            attempt.prefill_failed = attempt.prefill_failed or request.error is not None

    async def _forward(self, attempt: Attempt, driver: Driver, opening: Opening) -> None:
        """Pass on what the engine writes, to its end, or as far as anybody waits for it. Raises Superseded where the
        engine has not been asked yet."""
        config, transcoder = self._config, attempt.transcoder
        try:
            async with attempt.client.in_flight:
                stream = await opening.response(config.first_event_timeout_s)
                attempt.sent = True
                if stream.status != 200:
                    attempt.rejected = True
                    raise await refusal(driver, stream)
                await StreamForwarder(stream, attempt, config, self._first_event, self._first_text).run()
        except Superseded as newer:
            if not opening.sent:
                attempt.counted(Usage(), Finish.NOT_PLACED)
                raise
            attempt.sent = True
            transcoder.cut()
            self._superseded(attempt.request, newer, "decode" if transcoder.text_seen else "prefill")

    def _superseded(self, request: InferenceRequest, newer: Superseded, stage: str) -> None:
        request.superseded_by = newer.by
        self._metrics.superseded(stage)

    def _first_event(self, attempt: Attempt) -> None:
        """The engine has begun: send our headers, unless they have left, with the phases so far."""
        request, response, transcoder = attempt.request, attempt.client.response, attempt.transcoder
        if transcoder.error is not None and not transcoder.events:
            raise transcoder.error
        attempt.first_event_seen = True
        if attempt.prefill_request is not None:
            attempt.prefill_request.answered()
        request.clock.end(Phase.ENGINE)
        if request.target.model.cascade is not None:
            response.headers.append((ANSWERED_BY, attempt.opened.model.encode()))
        if request.generation.stream:
            if not isinstance(attempt, FirstAttempt):
                response.headers.append(server_timing(request.clock))
            response.start_stream()
            attempt.status = response.status

    def _first_text(self, attempt: Attempt) -> None:
        """The model has written text: the router learns its time to the first token, like the request's measurement.
        Many engines send their first event before they have read the prompt."""
        attempt.first_text()
        usage = attempt.tracker.total
        ttft_s = attempt.request.clock.age_s - attempt.granted_s
        self._router.first_token(attempt.engine_request_id, ttft_s, usage.cached_tokens if usage else 0)

    async def _outlive(self, attempt: Attempt, opening: Opening, recording: Recording) -> None:
        """Its client has gone; go on while others read what is generated. They are of the same key, which pays."""
        loop, config = asyncio.get_running_loop(), self._config
        try:
            async with asyncio.timeout(config.first_event_timeout_s) as limit:
                recording.on_alone = lambda: None if limit.expired() else limit.reschedule(loop.time())
                stream = await opening.response(config.first_event_timeout_s)
                while stream.status == 200 and (data := await stream.read()):
                    attempt.size.add(len(data))
                    seen = attempt.transcoder.events
                    attempt.transcoder.feed(data)
                    recording.feed(data)
                    if recording.readings and attempt.transcoder.events != seen:
                        limit.reschedule(loop.time() + config.event_timeout_s)
        except (TimeoutError, ServiceError) as error:
            logger.debug("request %s is not gone on with: %s", attempt.request.request_id, error)
        finally:
            recording.on_alone = None
            recording.close(End.BROKEN)

    async def _stop(self, attempt: Attempt, driver: Driver, opening: Opening, engine: Engine, finish: Finish) -> None:
        """The client has gone, or has enough: stop the engine and learn how much it had generated.

        An engine that stops by id still sends its final count on the open stream, and so does any that had finished.
        One that only stops when the connection closes leaves what was seen or delivered, a lower bound.
        """
        transcoder, tracker, timeout_s = attempt.transcoder, attempt.tracker, self._config.abort_drain_s
        abort = driver.abort(attempt.engine_request_id, attempt.request.generation.choices)
        if not opening.sent or attempt.rejected or (abort is None and not transcoder.finished):
            return
        try:
            async with asyncio.timeout(timeout_s):
                if abort is not None and not transcoder.finished:
                    await self._connections.fetch(engine.url, abort, timeout_s, pool_name=engine.pool)
                stream = await opening.response(timeout_s)
                attempt.rejected = stream.status != 200
                while data := await stream.read():
                    attempt.size.add(len(data))
                    transcoder.feed(data)
                if tracker.final and tracker.total is not None:
                    attempt.finished(tracker.total, finish)
                elif ask := driver.usage_by_id(attempt.engine_request_id):
                    status, body = await self._connections.fetch(engine.url, ask, timeout_s, pool_name=engine.pool)
                    if (usage := driver.parse_usage_by_id(status, body)) is not None:
                        attempt.finished(usage, finish)
            self._observe_abort(attempt, finish)
        except (TimeoutError, ServiceError) as error:
            request_id = attempt.request.request_id
            logger.warning("request %s: engine %s did not confirm the abort: %s", request_id, engine.url, error)

    def _observe_abort(self, attempt: Attempt, finish: Finish) -> None:
        """How long the engine went on for nobody. A stop rule is nobody's leaving."""
        client, since_s = attempt.client, None
        if finish is Finish.CLIENT_GONE:
            cause, since_s = "client_gone", client.watch.since_s
        elif attempt.request.superseded_by is not None:
            cause, since_s = SUPERSEDED, client.in_flight.since_s
        if since_s is not None:
            self._metrics.aborted(cause, time.perf_counter() - since_s)

    def _observe(self, request: InferenceRequest, response: ResponseWriter) -> None:
        status, code = response.status or 499, response.error_code or "none"
        if request.purpose is not None:  # behind everybody else on purpose: in no figure of what customers get
            response.error = None
            self._metrics.asked_by_us(request.purpose, status, code)
            return
        error = response.error
        over_share = isinstance(error, Overloaded) and error.over_share
        self._metrics.ended(request.tier, request.endpoint, status, code, over_share=over_share)
        if not yields(request.generation.priority):  # promises are read from these, and none counts it
            self._metrics.observe_phases(request.tier, request.clock.durations_s)
            self._metrics.latency.observe(request.tier, request.model, request.measurement, request.timing)
        self._traces.add(request, response)
        if request.ran:
            wanted = request.key.store_prompts
            self._prefixes.add(
                request.request_id, request.caller, request.endpoint, request.prepared, texts_stored=wanted
            )


def _rate_headers(request: InferenceRequest, error: SlipstreamError) -> Headers:
    """A refusal by a limit says where its counters stand."""
    return request.wire_format.rate_headers(error.state) if isinstance(error, CounterReached) else []
