"""Makes spans of what has happened, with ids and times that are known by then.

Spans are made when a request is over: while it runs, one that is traced costs little more than one that is not. They
are the SDK's finished spans, made without its tracer, which is for spans that are still open and takes thrice as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """Where a process' spans go. All methods are called on its event loop."""

    def __init__(self, queue: SpanQueue, resource: Mapping[str, str]) -> None:
        """queue: takes each span and does not wait. resource: what the process is."""
        self._queue = queue
        self._resource = Resource(dict(resource))
        self._scope = InstrumentationScope("slipstream")

    def add(self, trace: TraceContext, spans: Sequence[Span]) -> None:
        """Export these spans of a trace."""
        trace_id, state = int(trace.trace_id, 16), TraceState.from_header([trace.state] if trace.state else [])
        for span in spans:
            above = span.parent_id
            remote = above == trace.parent_id
            self._queue.add(
                ReadableSpan(
                    span.name,
                    SpanContext(trace_id, int(span.span_id or new_span_id(), 16), False, _SAMPLED, state),
                    SpanContext(trace_id, int(above, 16), remote, _SAMPLED, state) if above else None,
                    self._resource,
                    BoundedAttributes(MAX_ATTRIBUTES, span.attributes, max_value_len=MAX_ATTRIBUTE_CHARACTERS),
                    kind=KINDS[span.kind],
                    status=_ERROR if span.failed else _UNSET,
                    start_time=span.start_ns,
                    end_time=max(span.start_ns, span.end_ns),
                    instrumentation_scope=self._scope,
                )
            )

    def stop(self) -> None:
        """Send what waits and end. Waits for the collector, though not long: see `SpanQueue`."""
        self._queue.stop()
