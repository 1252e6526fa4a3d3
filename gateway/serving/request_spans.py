"""Creates an ended request's spans from its clock and its attempts, with names, numbers and ids, but no content.

POST /v1/chat/completions     the request; caller and usage
  auth, limit                 phases, as `slipstream requests show` names them
  route                       an attempt's way to the router, whose span is below
  chat MODEL                  the engine's part of the attempt; an embedded engine's span is below
    engine, first_token, decode
  stream
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from contracts.generation import ChatPrompt
from contracts.phases import Phase
from gateway.serving.request import Arrival, InferenceRequest
from gateway.serving.request_trace import AttemptTrace, Mark, RequestTrace, TracedClock
from gateway.supersession.in_flight_request import SUPERSEDED
from telemetry import attributes as name
from telemetry.sampler import Sampler
from telemetry.span import Span, Value

if TYPE_CHECKING:
    from telemetry.tracing import Tracing

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call", "abort"})
"""Finish reasons that spans show as they are; an engine may write any text."""
ENGINE_PHASES = (Phase.ENGINE, Phase.FIRST_TOKEN, Phase.DECODE)
Attributes = dict[str, Value]


class Ended(NamedTuple):
    """The end of a request. request: None if it could not be decoded."""

    status: int
    error_code: str | None = None
    request: InferenceRequest | None = None


class RequestSpans:
    """Creates the spans of a gateway's requests."""

    def __init__(self, tracing: Tracing, sampler: Sampler) -> None:
        self._tracing = tracing
        self._sampler = sampler
        self._unchosen = RequestTrace(sampler.begin(""), None)
        """The trace that unsampled requests share."""

    def begin(self, arrival: Arrival) -> None:
        """Begin a request's trace context, with a clock that records phases if the request gets spans."""
        parent, state = arrival.headers.get(b"traceparent", b""), arrival.headers.get(b"tracestate", b"")
        context = self._sampler.begin(parent.decode("latin-1"), state.decode("latin-1"))
        if context is self._unchosen.context:
            arrival.trace = self._unchosen
            return
        clock = TracedClock() if context.sampled else None
        arrival.clock = clock or arrival.clock
        arrival.trace = RequestTrace(context, clock)
        if not context.known_elsewhere:
            self._unchosen = arrival.trace

    def end(self, arrival: Arrival, path: str, ended: Ended) -> None:
        """Export the spans of an ended request if it was sampled. path: its endpoint's path."""
        trace = arrival.trace
        if trace is None or trace.clock is None:
            return
        self._tracing.add(trace.context, _Tree(arrival, path, trace, trace.clock, ended))


class _Tree:
    """A request's spans, created during iteration. Holds no content."""

    def __init__(self, arrival: Arrival, path: str, trace: RequestTrace, clock: TracedClock, ended: Ended) -> None:
        self._path = path
        self._trace = trace
        self._clock = clock
        self._took_s = clock.age_s
        self._operation = name.TEXT_COMPLETION
        self._model = ""
        if ended.request is not None:
            generation = ended.request.generation
            self._model = generation.model
            if isinstance(generation.prompt, ChatPrompt):
                self._operation = name.CHAT
        broken = ended.status < 400 and ended.error_code not in (None, SUPERSEDED)
        self._failed = ended.status >= 500 or broken
        self._attributes = self._of_request(arrival, ended)
        for attempt in trace.attempts:
            attempt.tracker = None  # it may hold the answer

    def __len__(self) -> int:
        phases = sum(mark.phase is not Phase.ROUTE for mark in self._clock.marks)
        attempts = sum((each.asked_s is not None) + each.served for each in self._trace.attempts)
        return 1 + phases + attempts

    def __contains__(self, span: object) -> bool:
        """Whether the span belongs to this request."""
        return any(span == each for each in self)

    def __iter__(self) -> Iterator[Span]:
        """The request's span, then the spans of its phases, then those of its attempts."""
        root, path = self._trace.context, self._path
        yield self._span(
            f"POST {path}",
            root.parent_id,
            (0.0, self._took_s),
            {name.REQUEST_METHOD: "POST", name.ROUTE: path, **self._attributes},
            kind="server",
            span_id=root.span_id,
            failed=self._failed,
        )
        for mark in self._clock.marks:
            if mark.phase is not Phase.ROUTE:
                yield self._phase(mark)
        for number, attempt in enumerate(self._trace.attempts):
            yield from self._attempt(number, attempt)

    def _of_request(self, arrival: Arrival, ended: Ended) -> Attributes:
        attributes: Attributes = {
            name.REQUEST_ID: arrival.request_id,
            name.ENDPOINT: arrival.endpoint,
            name.STATUS_CODE: ended.status,
            name.ATTEMPTS: len(self._trace.attempts),
        }
        if ended.error_code is not None and ended.error_code != SUPERSEDED:
            attributes[name.ERROR_TYPE] = ended.error_code
        if (request := ended.request) is None:
            return attributes
        generation = request.generation
        attributes |= {
            name.ORGANIZATION_ID: request.caller.organization_id,
            name.PROJECT_ID: request.caller.project_id,
            name.TIER: request.tier,
            name.OPERATION: self._operation,
            name.REQUEST_MODEL: generation.model,
            name.RESPONSE_MODEL: request.target.model.name,
            name.MAX_TOKENS: generation.sampling.max_tokens,
            name.STREAM: generation.stream,
        }
        if generation.choices > 1:
            attributes[name.CHOICES] = generation.choices
        if (first_chunk_s := self._first_chunk_s()) is not None:
            attributes[name.TIME_TO_FIRST_CHUNK] = first_chunk_s
        for attempt in reversed(self._trace.attempts):
            if attempt.engine is not None:
                return attributes | _answer(attempt)
        return attributes

    def _first_chunk_s(self) -> float | None:
        """When the first generated text was sent; None if none was."""
        return next((mark.ended_s for mark in self._clock.marks if mark.phase is Phase.FIRST_TOKEN), None)

    def _phase(self, mark: Mark) -> Span:
        parent_id, began_s = self._trace.context.span_id, mark.began_s
        for attempt in self._trace.attempts:
            if attempt.granted_s is None:
                # the clock adds a wait for a lease that was not granted to the next phase
                began_s = max(began_s, min(attempt.ended_s, mark.ended_s))
            elif mark.phase in ENGINE_PHASES and attempt.granted_s <= mark.began_s:
                parent_id = attempt.engine_span_id
        return self._span(mark.phase.value, parent_id, (began_s, mark.ended_s))

    def _attempt(self, number: int, attempt: AttemptTrace) -> Iterator[Span]:
        attributes: Attributes = {name.ATTEMPT: number}
        if attempt.error_code is not None:
            attributes[name.ERROR_TYPE] = attempt.error_code
        granted_s, engine, root_id = attempt.granted_s, attempt.engine, self._trace.context.span_id
        if attempt.asked_s is not None:
            refused = granted_s is None and attempt.error_code is not None
            yield self._span(
                "route",
                root_id,
                (attempt.asked_s, attempt.ended_s if granted_s is None else granted_s),
                attributes if refused else {name.ATTEMPT: number},
                kind="client",
                span_id=attempt.route_span_id,
                failed=refused,
            )
        if granted_s is None or engine is None:
            return
        address = urlsplit(engine.url)
        attributes |= {
            name.SERVER_ADDRESS: address.hostname or "",
            name.SERVER_PORT: address.port or (443 if address.scheme == "https" else 80),
            name.REPLICA: engine.replica_id,
            name.POOL: engine.pool,
            name.DRIVER: engine.driver,
            name.FINISH: attempt.finish,
        }
        yield self._span(
            f"{self._operation} {self._model}",
            root_id,
            (granted_s, self._engine_ended_s(attempt, granted_s)),
            attributes,
            kind="client",
            span_id=attempt.engine_span_id,
            failed=attempt.error_code is not None,
        )

    def _engine_ended_s(self, attempt: AttemptTrace, granted_s: float) -> float:
        """The end of the attempt's last phase, before its last journal record."""
        ends = (
            mark.ended_s
            for mark in self._clock.marks
            if mark.phase in ENGINE_PHASES and granted_s <= mark.began_s and mark.ended_s <= attempt.ended_s
        )
        return max(ends, default=granted_s)

    def _span(
        self,
        span_name: str,
        parent_id: str,
        times_s: tuple[float, float],
        attributes: Attributes | None = None,
        *,
        kind: Literal["server", "client", "internal"] = "internal",
        span_id: str = "",
        failed: bool = False,
    ) -> Span:
        start_ns, end_ns = (self._clock.started_ns + round(at_s * 1e9) for at_s in times_s)
        return Span(span_name, parent_id, start_ns, end_ns, attributes or {}, kind, span_id, failed)


def _answer(attempt: AttemptTrace) -> Attributes:
    """The usage of an engine's response, only on the request's span, so that a sum over spans counts tokens once."""
    assert attempt.engine is not None
    usage = attempt.usage
    attributes: Attributes = {
        name.PROVIDER: attempt.engine.driver,
        name.INPUT_TOKENS: usage.prompt_tokens,
        name.OUTPUT_TOKENS: usage.completion_tokens,
        name.CACHED_TOKENS: usage.cached_tokens,
    }
    if attempt.tracker is not None and (reasons := attempt.tracker.finish_reasons.values()):
        attributes[name.FINISH_REASONS] = [reason if reason in FINISH_REASONS else "other" for reason in reasons]
    return attributes
