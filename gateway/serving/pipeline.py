"""Runs one request, from its reservation to its settlement. Read `run`, `_serve`, `_attempt` and `generate` in order.

- `run` watches the client, turns errors into responses, and reports the request's end to observers.
- `_serve` reserves and settles, once per request.
- `_attempt` opens and closes a journal entry, and acquires and releases a lease, once per attempt.
- `generate` (`gateway.serving.generator`) opens, relays and closes an engine's stream.

A request ends early if its client leaves, which cancels all of it, or if its user types on, which ends only the wait
for a slot and the engine's response.

Features that only watch a request subscribe to its events (`gateway.serving.observers`).

Each function releases what it acquired. The last frames are sent only after everything is released, so a client that
has received [DONE] finds its place in the limits free and its usage on disk. The router may learn up to
`report_delay_s` later that the engine has a free slot.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64encode
from collections.abc import Awaitable

import msgspec

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
    forget_frames,
)
from contracts.lease import Lease
from contracts.phases import Phase
from contracts.usage import Finish
from gateway.http.disconnect import ClientGone, ClientWatch, Disconnectable
from gateway.http.response import ResponseWriter
from gateway.http.server_timing import server_timing
from gateway.limits.refusal import CounterReached
from gateway.metering.journal.records import LINE_CLOSED
from gateway.serving.attempt import Attempt, Client, unanswered
from gateway.serving.cascade import Cascades
from gateway.serving.collaborators import EngineCaller, Router, UsageJournal
from gateway.serving.config import ServingConfig
from gateway.serving.continuations import Continuations
from gateway.serving.first import First
from gateway.serving.first_attempt import FirstAttempt
from gateway.serving.generator import ANSWERED_BY
from gateway.serving.heartbeat import Heartbeat
from gateway.serving.idle_timeout import Wait
from gateway.serving.observers import Observers
from gateway.serving.request import InferenceRequest
from gateway.serving.request_costs import used
from gateway.serving.request_limits import RequestLimits
from gateway.supersession.in_flight_request import SUPERSEDED, InFlightRequest, Superseded
from gateway.supersession.supersession import Supersession
from gateway.wire.errors import Headers

logger = logging.getLogger(__name__)

MAX_BROKEN = 2
"""How many engines may fail while they have the same request, whatever `max_attempts` allows. It is not 1, because a
crash ends all running requests, of which at most one caused it, and the others must be served elsewhere. A failure of a
cascade's small model does not count, because the large model serves the request."""
TRIED_AGAIN = (EngineFailed, EngineTimeout, Overloaded, NoEngine, AdapterUnavailable)
"""Failures after which the gateway tries another engine."""
SUPERSEDED_BY = b"x-slipstream-superseded-by"
"""Header with the id of the request that superseded this one."""


class RequestPipeline:
    """Serves requests. It holds their shared parts, but no request's state."""

    def __init__(
        self,
        config: ServingConfig,
        limits: RequestLimits,
        journal: UsageJournal,
        router: Router,
        generator: EngineCaller,
        supersession: Supersession,
        continuations: Continuations,
        cascades: Cascades,
        observers: Observers,
    ) -> None:
        self._config = config
        self._limits = limits
        self._journal = journal
        self._router = router
        self._generator = generator
        self._supersession = supersession
        self._continuations = continuations
        self._cascades = cascades
        self._observers = observers

    async def run(
        self, request: InferenceRequest, connection: Disconnectable, response: ResponseWriter, wait: Wait
    ) -> None:
        """Serve one prepared request to its end. wait: the stream's current wait, which the caller has registered.

        Raises nothing: failures become error responses and log lines.
        """
        self._observers.arrived(request)
        try:
            async with ClientWatch(connection) as watch:
                if request.prepared.gap is None:  # no other request shares or supersedes it
                    alone = InFlightRequest(request.request_id, None)
                    await self._answer(request, Client(response, watch, wait, alone))
                    return
                with (
                    self._continuations.joined(request) as shared_id,
                    self._supersession.registered(request.request_id, request.keystroke, spared=shared_id) as in_flight,
                ):
                    await self._answer(request, Client(response, watch, wait, in_flight))
        except ClientGone:
            response.error_code = response.error_code or "client_gone"
        finally:
            request.clock.end(Phase.STREAM)
            self._observers.ended(request, response)

    async def _answer(self, request: InferenceRequest, client: Client) -> None:
        """Run `_serve`, and send its last frames or its error."""
        response = client.response
        try:
            closing = await self._serve(request, client)
            if request.before_end is not None:
                await request.before_end()
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
            forget_frames(error)
        except Exception:
            logger.exception("request %s failed", request.request_id)
            response.fail(InternalError(f"Internal error. Quote request {request.request_id} when you report it."))

    async def _serve(self, request: InferenceRequest, client: Client) -> bytes:
        """Reserve, run and settle. Returns the bytes to send last."""
        reservation = await self._limits.reserve(request, client.in_flight)
        try:
            if reservation.state is not None:
                client.response.headers.extend(request.wire_format.rate_headers(reservation.state))
            if request.generation.stream and request.wire_format.heartbeat:
                client.wait.heartbeat = Heartbeat(client.response, request.clock, time.monotonic())
            self._supersession.supersede_older(client.in_flight)
            if request.first is not None and (closing := await self._first(request, request.first, client)) is not None:
                return closing
            return await self._attempts(request, client)
        except Superseded:
            return unanswered(request)
        finally:
            await self._limits.settle(request, reservation)

    async def _first(self, request: InferenceRequest, first: First, client: Client) -> bytes | None:
        """Returns the small model's response if it is complete, in time and confident enough. Otherwise returns None,
        and the large model serves the request, unless the client has left."""
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
            forget_frames(error)
            return None
        finally:
            self._cascades.judged(request, attempt)
        attempt.held.give(request, client.response)
        return closing

    async def _attempts(self, request: InferenceRequest, client: Client) -> bytes:
        """Try engines until one begins to respond. If none does, the first failure is raised. A request during which
        several engines failed is not retried, because it may be the cause."""
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
                    self._observers.answered(attempt)
                return closing
            except SlipstreamError as error:
                if not isinstance(error, TRIED_AGAIN):
                    raise
                broken += attempt.broke_engine
                failing = attempt.failed_engine
                if attempt.first_event_seen or failing is None or broken == MAX_BROKEN:
                    raise failure or error from None
                failure = failure or error
                if not attempt.adapter_lost:  # else the same engine must load it again
                    failed_on += (failing.replica_id,)
                forget_frames(error)
        assert failure is not None
        raise failure

    async def _attempt(self, attempt: Attempt) -> bytes:
        """Make one journal entry, and take one lease, unless another request's generation answers the request."""
        request, config = attempt.request, self._config
        deadline_s = config.queue_deadline_s[request.generation.tier]
        # an engine must refuse requests in its own queue before the gateway considers it silent
        attempt.start_within_s = min(deadline_s, config.first_event_timeout_s / 2)
        self._journal.opened(attempt.opened)
        request.clock.end(Phase.LIMIT)
        try:
            if (shared := await self._continuations.follow(attempt)) is not None:
                return shared
            lease = await self._lease(attempt, deadline_s)
            request.clock.end_split(Phase.ROUTE, Phase.QUEUE, lease.queued_s)
            attempt.granted_s, attempt.prefill = request.clock.total_s, lease.prefill
            self._observers.placed(attempt, lease.engine)
            try:
                self._journal.placed(attempt.placed(lease.engine))
                closing = await self._generator.generate(attempt, lease)
                attempt.status = 200
                return closing
            except SlipstreamError as error:
                attempt.failed(error)
                if attempt.engine_fault:
                    failing = attempt.failed_engine or lease.engine
                    logger.warning("request %s on %s: %s", request.request_id, failing.replica_id, error)
                self._observers.failed(attempt, error)
                raise
            finally:
                self._router.release(attempt.lease_end(lease.lease_id))
        except Superseded as newer:
            request.superseded_by = newer.by
            self._observers.superseded(request, "queue")
            attempt.status = 200
            raise
        except SlipstreamError as error:
            attempt.error_code = error.code
            attempt.status = attempt.client.response.status or request.wire_format.error_status(error)
            raise
        finally:
            cancelled = None
            if request.was_ended is not None and attempt.finish in (Finish.CLIENT_GONE, Finish.COMPLETE):
                cancelled = await _learn_whether_ended(request, request.was_ended())
            attempt.traced()
            request.measurement, request.timing = attempt.measured(), attempt.timing
            if attempt.counts_in_limits:
                paid = attempt.billed or (request.key.line and attempt.billed_later)
                request.used = used(attempt.usage_for_limits, attempt.price if paid else None)
                request.ran = True
            self._observers.attempted(attempt)
            closed = attempt.closed()
            await self._journal.closed(closed)
            if request.key.line and attempt.billed_later and not request.tenant_left:
                record = b64encode(msgspec.json.encode(closed))
                attempt.client.response.headers.append((LINE_CLOSED, record))
                if attempt.client.response.started:  # its headers were sent, so the record goes before its last events
                    attempt.client.response.events(b": %b %b\n\n" % (LINE_CLOSED, record))
            if cancelled is not None:
                raise cancelled

    async def _lease(self, attempt: Attempt, deadline_s: float) -> Lease:
        """Wait for an engine's slot. A refused, superseded or abandoned wait also counts as queueing."""
        try:
            async with attempt.client.in_flight:
                if attempt.target.model.cascade is None:
                    return await self._router.acquire(attempt.lease_request(deadline_s))
                with self._cascades.waiting(attempt) as wait:
                    lease = await self._router.acquire(attempt.lease_request(deadline_s))
                    wait.ended_s = lease.queued_s
                return lease
        except BaseException as error:
            attempt.request.clock.end(Phase.ROUTE if isinstance(error, RouterUnavailable) else Phase.QUEUE)
            raise


async def _learn_whether_ended(request: InferenceRequest, was_ended: Awaitable[bool]) -> asyncio.CancelledError | None:
    """Set whether the tenant ended the run. Returns a cancellation that arrives meanwhile, to be raised once the
    attempt is closed: a worker leaves because the tenant ended the run, and the run must be billed."""
    asking = asyncio.ensure_future(was_ended)
    try:
        request.tenant_left = await asyncio.shield(asking)
    except asyncio.CancelledError as cancelled:
        request.tenant_left = await asking
        return cancelled
    return None


def _rate_headers(request: InferenceRequest, error: SlipstreamError) -> Headers:
    """Headers with the counters of the limit that refused the request; empty for other errors."""
    return request.wire_format.rate_headers(error.state) if isinstance(error, CounterReached) else []
