"""Makes spans of what has happened, with ids and times that are known by then.

Spans are made when a request is over: while it runs, one that is traced costs little more than one that is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from telemetry.span import Span
from telemetry.trace_context import TraceContext, new_span_id

KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}


class Tracing:
    """Where a process' spans go. All methods are called on its event loop."""

    def __init__(self, processor: SpanProcessor, resource: Mapping[str, str]) -> None:
        """processor: takes each span; must not wait. resource: what the process is."""
        self._ids = _ToldIds()
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what is made here was chosen before
            resource=Resource(dict(resource)),
            id_generator=self._ids,
            span_limits=SpanLimits(max_attributes=128, max_attribute_length=512),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("slipstream")

    def add(self, trace: TraceContext, spans: Sequence[Span]) -> None:
        """Export these spans of a trace."""
        trace_id, state = int(trace.trace_id, 16), TraceState.from_header([trace.state] if trace.state else [])
        for span in spans:
            self._ids.trace_id, self._ids.span_id = trace_id, int(span.span_id or new_span_id(), 16)
            made = self._tracer.start_span(
                span.name,
                _parent(trace_id, span.parent_id, state, is_remote=span.parent_id == trace.parent_id),
                kind=KINDS[span.kind],
                attributes=span.attributes,
                start_time=span.start_ns,
            )
            if span.failed:
                made.set_status(Status(StatusCode.ERROR))
            made.end(max(span.start_ns, span.end_ns))

    def stop(self) -> None:
        """Send what waits and end. Waits for the collector, though not long: see `SpanQueue`."""
        self._provider.shutdown()


def _parent(trace_id: int, span_id: str, state: TraceState, *, is_remote: bool) -> Context:
    """What the SDK takes for the span above; an empty context is none, instead of whichever is current."""
    if not span_id:
        return Context()
    above = SpanContext(trace_id, int(span_id, 16), is_remote, TraceFlags(TraceFlags.SAMPLED), state)
    return set_span_in_context(NonRecordingSpan(above), Context())


class _ToldIds(IdGenerator):
    """Gives spans the ids that other processes were told of them, before there were any spans."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        """Asked for the first span of a trace only."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Asked once a span."""
        return self.span_id
