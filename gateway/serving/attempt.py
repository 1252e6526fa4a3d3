"""Holds the state of one attempt to serve a request on an engine, and makes the attempt's journal records."""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from contracts.errors import AdapterUnavailable, EngineFailed, EngineTimeout, Overloaded, RequestError, SlipstreamError
from contracts.generation import BACKGROUND_PRIORITY, Bootstrap, Generation
from contracts.lease import Engine, LeaseEnd, LeaseRequest
from contracts.phases import Phase
from contracts.split import Side
from contracts.usage import Finish, Outcome, Purpose, Usage
from engines.drivers.error_bodies import engine_error
from gateway.http.disconnect import ClientWatch
from gateway.http.response import ResponseWriter
from gateway.limits.priorities import USUAL_SHARE
from gateway.metering.journal.records import Closed, Opened, Placed, engine_request_id
from gateway.observability.measurement import Measurement
from gateway.serving.answer_size import AnswerSize
from gateway.serving.file_history import Placing
from gateway.serving.idle_timeout import Wait
from gateway.serving.prefill import PrefillRequest
from gateway.serving.request import InferenceRequest
from gateway.serving.request_trace import header
from gateway.serving.stream_timing import StreamTiming
from gateway.supersession.in_flight_request import InFlightRequest
from gateway.wire.chunk import ReadError
from gateway.wire.format import Transcoder
from gateway.wire.prepared import Prepared, Target
from gateway.wire.usage_tracker import UsageTracker


class Client(NamedTuple):
    """The caller that waits for a request's response."""

    response: ResponseWriter
    watch: ClientWatch
    wait: Wait
    """The stream's current wait, for the engine or for the client."""
    in_flight: InFlightRequest
    """Ends the wait when a newer keystroke supersedes it."""


class Attempt:
    """The state of an attempt, from which its `opened`, `placed` and `closed` records are made.

    A new attempt is not placed, and its usage is zero and exact.
    """

    transcoder: Transcoder
    """Translates the engine's events into the client's answer; set by `begin`."""
    tracker: UsageTracker
    """Reads usage from the engine's events; set by `begin`."""

    def __init__(
        self,
        request: InferenceRequest,
        client: Client,
        number: int,
        failed_on: tuple[str, ...] = (),
        idle_replica: str = "",
        asked: tuple[Target, Prepared] | None = None,
    ) -> None:
        """failed_on: replicas on which earlier attempts of the request failed. idle_replica: the only acceptable
        replica, for unbilled background work. asked: target and request for another model."""
        self.request = request
        self.target, self.prepared = asked or (request.target, request.prepared)
        self.client = client
        self.number = number
        self.failed_on = failed_on
        self.idle_replica = idle_replica
        self.engine_request_id = engine_request_id(request.request_id, number)
        self._trace = None if request.trace is None else request.trace.attempt()
        generation = self.prepared.generation
        self.price = price = request.prices.get(generation.model)
        """The price for budgets and the bill; None if it is unknown."""
        self.opened = Opened(
            request.request_id,
            number,
            request.caller.organization_id,
            request.caller.project_id,
            request.caller.key_id,
            generation.model,
            generation.tier,
            request.endpoint,
            generation.stream,
            generation.choices * generation.sampling.max_tokens,
            self.prepared.prompt_tokens,
            time.time(),
            Purpose.BATCHES if request.key.line else request.purpose,
            None if generation.adapter is None else generation.adapter.name,
            None if price is None else price.version,
            generation.priority < 0,
        )
        self.engine: Engine | None = None
        self.prefill: Engine | None = None
        """The engine that computes the prompt for `engine`; None if `engine` computes it."""
        self.bootstrap: Bootstrap | None = None
        """The address at which the two engines meet."""
        self.start_within_s: float | None = None
        """Longest wait in the engine's own queue; None for no limit."""
        self.no_drafts = False
        """Whether the engine must not use draft tokens."""
        self.prefill_request: PrefillRequest | None = None
        """The request sent to the prefill engine."""
        self.prefill_failed = False
        """Whether the prefill engine failed or refused the request."""
        self.granted_s = 0.0
        """When the lease was granted, on the request's clock."""
        self.placing: Placing | None = None
        """The placement of the request's file; None if the request has no file or was not placed."""
        self.sent = False
        """Whether the engine may have received the request."""
        self.rejected = False
        """Whether the engine returned an error instead of a stream."""
        self.first_event_seen = False
        """Whether the engine's first event has arrived."""
        self.ended = False
        """Whether the attempt's usage has been recorded."""
        self.size = AnswerSize(generation)
        """Size of the engine's response."""
        self.timing = StreamTiming()
        """Timing of the response's tokens."""
        self._reported = False
        """Whether the engine reported the complete usage."""
        self._counted_by_us = False
        self.finish = Finish.NOT_PLACED
        self.outcome = Outcome.EXACT
        self.usage = Usage()
        self.error_code: str | None = None
        self.status = 499
        """The client's status; 499 if the client left first."""
        self._error: SlipstreamError | None = None

    @property
    def engine_fault(self) -> bool:
        """Whether the engine failed, as opposed to refusing a request that it cannot serve."""
        return isinstance(self._error, EngineFailed | EngineTimeout)

    @property
    def engine_full(self) -> bool:
        """Whether the engine, or its provider's limit, refused the request for lack of capacity."""
        return self.rejected and isinstance(self._error, Overloaded)

    @property
    def found_full(self) -> bool:
        """Like `engine_full`, or a pair's prefill engine refused the request for lack of capacity."""
        return isinstance(self._error, Overloaded) and (self.rejected or self.prefill_failed)

    @property
    def adapter_lost(self) -> bool:
        """Whether the engine reported that it lacks the adapter, which the router expected there."""
        return self.rejected and isinstance(self._error, AdapterUnavailable)

    @property
    def broke_engine(self) -> bool:
        """Whether the engine failed while it had the request. A failure to reach it does not count."""
        return self.sent and self.engine_fault

    @property
    def counts_in_limits(self) -> bool:
        """Whether an engine accepted the request, whatever the outcome. A full engine (429, 503) does not."""
        return self.sent and not self.found_full

    @property
    def billed(self) -> bool:
        """Whether the customer pays for this attempt.

        An attempt that the customer or the request's own rules ended is billed as far as the engine got, including its
        prompt. An attempt that the engine broke off is billed as far as it was forwarded; an unstreamed response never
        was. A batch's line is billed where its result is stored (`control/batches/claims.py`), and so is a background
        response, unless its tenant ended it while it was streamed.
        """
        if self.idle_replica or self.request.purpose is not None:
            return False
        if self.request.key.line and not self.request.tenant_left:
            return False
        if self.finish is Finish.COMPLETE:
            return True
        if self.finish is Finish.CLIENT_GONE or isinstance(self._error, RequestError):
            return self.usage.total_tokens > 0
        broken_off = self.finish is Finish.ENGINE_ERROR and self.first_event_seen and self.transcoder.text_seen
        return broken_off and self.opened.stream and self.usage.completion_tokens > 0

    @property
    def billed_later(self) -> bool:
        """Whether a batch's line has its whole answer, which budgets count now."""
        return self.finish is Finish.COMPLETE

    @property
    def usage_for_limits(self) -> Usage:
        """Usage for the limits, billed or not, with the gateway's count of the prompt if no engine reported one."""
        if self._reported or self.usage.prompt_tokens:
            return self.usage
        return msgspec.structs.replace(self.usage, prompt_tokens=self.opened.prompt_tokens_estimate)

    @property
    def engine_usage(self) -> Usage:
        """Usage for the router, which learns from the engine's prompt and cached tokens: zero without its report."""
        return Usage(completion_tokens=self.usage.completion_tokens) if self._counted_by_us else self.usage

    def lease_end(self, lease_id: str) -> LeaseEnd:
        """The lease's end, for the router."""
        missing = isinstance(self._error, AdapterUnavailable)
        fault, prefill_fault = self.engine_fault and not self.prefill_failed, self.engine_fault and self.prefill_failed
        full = self.engine_full
        return LeaseEnd(lease_id, self.finish, self.engine_usage, fault, full, missing, prefill_fault)

    @property
    def failed_engine(self) -> Engine | None:
        """The engine on which the attempt failed; None if it had none."""
        return self.prefill if self.prefill_failed else self.engine

    def finished(self, usage: Usage, finish: Finish = Finish.COMPLETE) -> None:
        """End the attempt with the engine's final count."""
        self.ended = self._reported = True
        self.finish, self.usage, self.outcome = finish, usage, Outcome.EXACT

    def counted(self, usage: Usage, finish: Finish, *, by_us: bool = False) -> None:
        """End the attempt without a final count. The engine reported `usage` earlier, or it was counted here."""
        self.ended = True
        self._counted_by_us = by_us
        self.finish, self.usage = finish, usage
        self.outcome = Outcome.LOWER_BOUND if self.sent and not self.rejected else Outcome.EXACT

    def failed(self, error: SlipstreamError) -> None:
        """Record that the attempt ended with `error` after a lease was granted."""
        if self.finish is Finish.NOT_PLACED:
            self.finish = Finish.ENGINE_ERROR
        self._error = error

    @property
    def generation(self) -> Generation:
        """The generation to request, under the attempt's own id."""
        return msgspec.structs.replace(
            self.prepared.generation,
            request_id=self.engine_request_id,
            bootstrap=self.bootstrap,
            no_drafts=self.no_drafts,
            start_within_s=self.start_within_s,
        )

    def lease_request(self, deadline_s: float) -> LeaseRequest:
        """The request to the router. deadline_s: how long the attempt may wait for an engine."""
        request, generation, prepared = self.request, self.prepared.generation, self.prepared
        traceparent = ""
        if request.trace is not None and self._trace is not None:
            self._trace.asked_s = request.clock.age_s
            traceparent = request.trace.context.traceparent(self._trace.route_span_id)
        organization_id = request.caller.organization_id
        shares = request.key.priorities.for_tier(request.target.model.tier)
        return LeaseRequest(
            lease_id=self.engine_request_id,
            request_id=request.request_id,
            attempt=self.number,
            tier=generation.tier,
            model=generation.model,
            prompt_tokens=prepared.prompt_tokens,
            max_output_tokens=generation.choices * generation.sampling.max_tokens,
            deadline_s=deadline_s,
            organization_id=organization_id,
            prefix_kind=prepared.chain.kind,
            prefix_hashes=prepared.chain.hashes,
            excluded_replicas=self.failed_on,
            session_id=f"{organization_id}:{prepared.session}" if prepared.session else "",
            unit=prepared.unit,
            affinity=prepared.file,
            idle_replica=self.idle_replica,
            traceparent=traceparent,
            priority=BACKGROUND_PRIORITY if request.purpose is not None else generation.priority,
            share=shares.share / USUAL_SHARE,
            project_id=request.caller.project_id,
            project_share=shares.project_share / USUAL_SHARE,
            pool=request.pool,
            adapter="" if generation.adapter is None else generation.adapter.engine_name,
        )

    def placed(self, engine: Engine) -> Placed:
        """Set the engine, and return the record that it is about to be called."""
        self.engine = engine
        return Placed(self.request.request_id, self.number, engine.replica_id, engine.url, engine.driver, engine.pool)

    def begin(self, *, salted_cache: bool, read_error: ReadError) -> None:
        """Prepare to read the engine's response. Parameters: see `Capabilities` and `Driver.error` of its dialect."""
        generation = self.request.generation
        choices = generation.choices
        self.tracker = UsageTracker(choices, choices // generation.sampling.n, salted_cache=salted_cache)
        self.transcoder = transcoder_of(self.request, self.tracker, read_error)
        if self._trace is not None:
            self._trace.tracker = self.tracker

    def first_text(self) -> None:
        """Record the arrival of the engine's first text."""
        self.request.clock.end(Phase.FIRST_TOKEN)

    def generated(self) -> None:
        """Record that the engine has stopped writing."""
        self.request.clock.end(Phase.DECODE if self.first_event_seen else Phase.ENGINE)

    def judged(self) -> None:
        """Called once the answer is complete. Raises HandedOver if the client must not get it."""

    @property
    def trace_headers(self) -> bytes:
        """Trace headers for the engine. An unsampled request is marked, or the engine might begin its own trace."""
        if (trace := self.request.trace) is None:
            return b""
        return trace.header if self._trace is None else header(trace.context, self._trace.engine_span_id)

    def traced(self) -> None:
        """Record the attempt's end for the request's spans."""
        if (trace := self._trace) is None:
            return
        trace.ended_s = self.request.clock.age_s
        trace.error_code, trace.finish = self.error_code, self.finish.value
        trace.engine, trace.usage = self.engine, self.usage
        if self.engine is not None:
            trace.granted_s = self.granted_s

    def measured(self) -> Measurement:
        """The request's measurement at this attempt's end.

        Without an engine only the client's side is known, because it read another request's generation or nothing.
        Several choices arrive as one stream, in which a gap belongs to no single choice, so they get only a time to
        first token. The engine's count matches its last arrival only if the engine ended the answer itself.
        """
        request, timing, first_token_s = self.request, self.timing, self.request.clock.first_token_s
        client = msgspec.structs.replace(
            request.measurement,
            attempts=self.number + 1,
            ttft_ms=None if first_token_s is None else _ms(first_token_s),
            client_stall_ms=_ms(timing.stall_s),
        )
        if self.engine is None:
            return self._compared_unserved(client) if self.error_code is not None else client
        alone = request.generation.choices == 1
        own_end = alone and self.finish is Finish.COMPLETE and self.transcoder.finished
        per_token_s = timing.per_token_s(self.usage.completion_tokens) if own_end else None
        reported = self.tracker.timing if self.sent else None
        gaps_seen = alone and timing.arrivals > 1
        side, release = request.side_on(self.engine.pool), request.compared_on(self.engine.pool)
        return msgspec.structs.replace(
            client,
            pool=self.engine.pool or None,
            replica_id=self.engine.replica_id,
            canary=side is Side.CANDIDATE,
            side=side,
            release=release,
            unit=request.prepared.unit if release else None,
            prompt_tokens=self.usage.prompt_tokens or client.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            completion_tokens=self.usage.completion_tokens,
            tpot_ms=None if per_token_s is None else _ms(per_token_s),
            itl_max_ms=_ms(timing.longest_gap_s) if gaps_seen else None,
            gaps_over_100ms=timing.gaps_over_100ms if gaps_seen else None,
            engine_queue_ms=None if reported is None else _ms(reported.queue_s),
            engine_prefill_ms=None if reported is None else _ms(reported.prefill_s),
            engine_grammar_ms=None if reported is None or reported.grammar_s is None else _ms(reported.grammar_s),
            retractions=None if reported is None else reported.retractions,
        )

    def _compared_unserved(self, client: Measurement) -> Measurement:
        """Add the request's side: one that lacks an engine for its sessions is compared by these errors, too."""
        request = self.request
        pool = request.expected_pool
        release = request.compared_on(pool)
        unit = request.prepared.unit if release else None
        return msgspec.structs.replace(client, side=request.side_on(pool), release=release, unit=unit)

    def closed(self) -> Closed:
        """The record of the attempt's end."""
        billed = self.billed
        own = billed and self.opened.purpose is not None  # a run that its tenant ended and pays for
        return Closed(
            opened=msgspec.structs.replace(self.opened, purpose=None) if own else self.opened,
            outcome=self.outcome,
            finish=self.finish,
            usage=self.usage,
            status=self.status,
            closed_at=time.time(),
            replica_id=self.engine.replica_id if self.engine else None,
            error_code=self.error_code,
            phases_ms=self.request.clock.as_ms(),
            billed=billed,
            pool=(self.engine.pool or None) if self.engine else None,
            driver=self.engine.driver if self.engine else None,
        )


def _ms(duration_s: float) -> float:
    return round(duration_s * 1e3, 3)


def transcoder_of(request: InferenceRequest, tracker: UsageTracker, read_error: ReadError) -> Transcoder:
    """The transcoder of a client's response. Parameters: see `WireFormat.transcoder`."""
    return request.wire_format.transcoder(request.request_id, request.prepared, tracker, read_error)


def unanswered(request: InferenceRequest) -> bytes:
    """The complete, empty answer to a request that no engine received."""
    transcoder = transcoder_of(request, UsageTracker(request.generation.choices), engine_error)
    transcoder.cut()
    return transcoder.finish()
