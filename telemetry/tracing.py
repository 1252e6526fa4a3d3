"""Makes spans of past operations, with their known ids and times.

Spans are made after a request, outside the running ones: a traced request costs little more than an untraced one. They
are the SDK's finished spans, made without its tracer, which is for open spans and takes three times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from telemetry.span import Span
from telemetry.trace_context import TraceContext, new_span_id

if TYPE_CHECKING:
    from telemetry.span_queue import SpanQueue

KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
MAX_ATTRIBUTES, MAX_ATTRIBUTE_CHARACTERS = 128, 512
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET, _ERROR = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class Tracing:
    """The destination of a process's spans. All methods are called on its event loop."""

    def __init__(self, queue: SpanQueue) -> None:
        """queue: takes spans and does not wait."""
        self._queue = queue

    def add(self, trace: TraceContext, spans: Collection[Span]) -> None:
        """Export these spans of a trace. spans: may create them lazily, on another thread."""
        self._queue.add(trace, spans)

    def stop(self) -> None:
        """Send waiting spans and end. Waits briefly for the collector: see `SpanQueue`."""
        self._queue.stop()


class FinishedSpans:
    """Converts spans to the SDK's, for one process."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        """resource: identifies the process."""
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope("slipstream")

    def of(self, trace: TraceContext, span: Span) -> ReadableSpan:
        """Convert one span of a trace."""
        trace_id, state = int(trace.trace_id, 16), TraceState.from_header([trace.state] if trace.state else [])
        above = span.parent_id
        return ReadableSpan(
            span.name,
            SpanContext(trace_id, int(span.span_id or new_span_id(), 16), False, _SAMPLED, state),
            SpanContext(trace_id, int(above, 16), above == trace.parent_id, _SAMPLED, state) if above else None,
            self._resource,
            BoundedAttributes(MAX_ATTRIBUTES, span.attributes, max_value_len=MAX_ATTRIBUTE_CHARACTERS),
            kind=KINDS[span.kind],
            status=_ERROR if span.failed else _UNSET,
            start_time=span.start_ns,
            end_time=max(span.start_ns, span.end_ns),
            instrumentation_scope=self._scope,
        )
