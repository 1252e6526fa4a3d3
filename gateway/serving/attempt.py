"""One attempt to have a request served by an engine: its inputs, and the contents of its journal records."""

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
    """Its stream's current wait: for the engine, or for the client."""
    in_flight: InFlightRequest
    """Ends the wait when a newer keystroke supersedes it."""


class Attempt:
    """The state of an attempt, which its `opened`, `placed` and `closed` records are made from.

    Defaults: not placed, zero usage, exact.
    """

    transcoder: Transcoder
    """Makes the client's answer of the engine's events; set by `begin`."""
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
        replica, for unbilled background work. asked: for another model than the request's."""
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
        """The price for budgets and the bill; None: not known."""
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
        """Computes the prompt for `engine`; None: `engine` does."""
        self.bootstrap: Bootstrap | None = None
        """Where the two engines meet."""
        self.start_within_s: float | None = None
        """Longest wait in the engine's own queue; None: no limit."""
        self.no_drafts = False
        """The engine is to use no draft tokens."""
        self.prefill_request: PrefillRequest | None = None
        """The request sent to the prefill engine."""
        self.prefill_failed = False
        """The prefill engine failed or refused."""
        self.granted_s = 0.0
        """When the lease was granted, on the request's clock."""
        self.placing: Placing | None = None
        """Knowledge about its file at placement; None: it is in no file, or was not placed."""
        self.sent = False
        """The engine may have the request."""
        self.rejected = False
        """The engine returned an error instead of a stream."""
        self.first_event_seen = False
        """The engine's first event has come."""
        self.ended = False
        """Its usage has been recorded."""
        self.size = AnswerSize(generation)
        """Size of the engine's response."""
        self.timing = StreamTiming()
        """Timing of its tokens."""
        self._told = False
        """The engine reported the complete usage."""
        self._counted_by_us = False
        self.finish = Finish.NOT_PLACED
        self.outcome = Outcome.EXACT
        self.usage = Usage()
        self.error_code: str | None = None
        self.status = 499
        """The client's status; 499: the client left first."""
        self._error: SlipstreamError | None = None

    @property
    def engine_fault(self) -> bool:
        """The engine failed, as opposed to refusing what cannot be served."""
        return isinstance(self._error, EngineFailed | EngineTimeout)

    @property
    def engine_full(self) -> bool:
        """The engine, or its provider's limit, refused it for lack of room."""
        return self.rejected and isinstance(self._error, Overloaded)

    @property
    def adapter_lost(self) -> bool:
        """The engine, which was thought to hold the adapter, reported that it does not."""
        return self.rejected and isinstance(self._error, AdapterUnavailable)

    @property
    def broke_engine(self) -> bool:
        """The engine failed while it had the request; that it could not be reached says nothing about the request."""
        return self.sent and self.engine_fault

    @property
    def counts_in_limits(self) -> bool:
        """Whether an engine accepted it, whatever the outcome. A full engine (429, 503) did not."""
        return self.sent and not self.engine_full

    @property
    def billed(self) -> bool:
        """Whether this attempt is the one the customer pays for.

        An attempt ended by the customer, or by the request's own rules, is billed as far as the engine got, its prompt
        included. One that the engine broke off is billed as far as it was sent on; an unstreamed response never was.
        A batch's line is billed where its result is stored (`control/batches/claims.py`), and so is a response in the
        background, unless its tenant ended it while it was streamed.
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
        """Of a batch's line: whether it is the whole answer, which budgets count now."""
        return self.finish is Finish.COMPLETE

    @property
    def usage_for_limits(self) -> Usage:
        """Usage for the limits, billed or not; our own count of the prompt if no engine has reported one."""
        if self._told or self.usage.prompt_tokens:
            return self.usage
        return msgspec.structs.replace(self.usage, prompt_tokens=self.opened.prompt_tokens_estimate)

    @property
    def engine_usage(self) -> Usage:
        """Usage for the router, which learns from engines' reports of a prompt and its cached part: empty if only we
        have counted."""
        return Usage(completion_tokens=self.usage.completion_tokens) if self._counted_by_us else self.usage

    def lease_end(self, lease_id: str) -> LeaseEnd:
        """The lease's end, for the router."""
        missing = isinstance(self._error, AdapterUnavailable)
        fault, prefill_fault = self.engine_fault and not self.prefill_failed, self.engine_fault and self.prefill_failed
        full = self.engine_full
        return LeaseEnd(lease_id, self.finish, self.engine_usage, fault, full, missing, prefill_fault)

    @property
    def failed_engine(self) -> Engine | None:
        """The engine on which it failed; None: it had none."""
        return self.prefill if self.prefill_failed else self.engine

    def finished(self, usage: Usage, finish: Finish = Finish.COMPLETE) -> None:
        """End the attempt; `usage` is the engine's final count."""
        self.ended = self._told = True
        self.finish, self.usage, self.outcome = finish, usage, Outcome.EXACT

    def counted(self, usage: Usage, finish: Finish, *, by_us: bool = False) -> None:
        """End the attempt without a final count; `usage` was reported earlier, or counted by us."""
        self.ended = True
        self._counted_by_us = by_us
        self.finish, self.usage = finish, usage
        self.outcome = Outcome.LOWER_BOUND if self.sent and not self.rejected else Outcome.EXACT

    def failed(self, error: SlipstreamError) -> None:
        """The attempt ended with `error` after a lease was granted."""
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
        """The record that an engine is about to be called."""
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
        """The engine's first text has come."""
        self.request.clock.end(Phase.FIRST_TOKEN)

    def generated(self) -> None:
        """The engine writes no more."""
        self.request.clock.end(Phase.DECODE if self.first_event_seen else Phase.ENGINE)

    def judged(self) -> None:
        """The answer is whole. Raises HandedOver for one that the client is not to have."""

    @property
    def trace_headers(self) -> bytes:
        """For the engine. An unsampled request is marked as such, or the engine might begin a trace of its own."""
        if (trace := self.request.trace) is None:
            return b""
        return trace.header if self._trace is None else header(trace.context, self._trace.engine_span_id)

    def traced(self) -> None:
        """Note for the request's spans how it ended."""
        if (trace := self._trace) is None:
            return
        trace.ended_s = self.request.clock.age_s
        trace.error_code, trace.finish = self.error_code, self.finish.value
        trace.engine, trace.usage = self.engine, self.usage
        if self.engine is not None:
            trace.granted_s = self.granted_s

    def measured(self) -> Measurement:
        """The request's measurement at this attempt's end.

        Without an engine only the client's side is known: it read another request's generation, or nothing. Several
        choices arrive as one stream, in which a gap belongs to no single choice: they get only a time to first token.
        The engine's count and its last arrival belong together only where it ended the answer itself.
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
        told = self.tracker.timing if self.sent else None
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
            engine_queue_ms=None if told is None else _ms(told.queue_s),
            engine_prefill_ms=None if told is None else _ms(told.prefill_s),
            engine_grammar_ms=None if told is None or told.grammar_s is None else _ms(told.grammar_s),
            retractions=None if told is None else told.retractions,
        )

    def _compared_unserved(self, client: Measurement) -> Measurement:
        """A side without an engine for its sessions is compared by that, too."""
        request = self.request
        pool = request.expected_pool
        release = request.compared_on(pool)
        unit = request.prepared.unit if release else None
        return msgspec.structs.replace(client, side=request.side_on(pool), release=release, unit=unit)

    def closed(self) -> Closed:
        """The record that the attempt is over."""
        billed = self.billed
        own = billed and self.opened.purpose is not None  # a run that its tenant ended, and pays
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
    """The whole answer to a request that no engine has had: complete, and empty."""
    transcoder = transcoder_of(request, UsageTracker(request.generation.choices), engine_error)
    transcoder.cut()
    return transcoder.finish()
