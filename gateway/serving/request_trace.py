"""Holds a running request's trace context and, if it gets spans, the times of its phases.

An unsampled request has only the ids, for downstream processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from contracts.lease import Engine
from contracts.phases import Phase, PhaseClock
from contracts.usage import Usage
from gateway.wire.usage_tracker import UsageTracker
from telemetry.trace_context import TraceContext, new_span_id


class Mark(NamedTuple):
    """A phase, with its start and end in seconds after the request's arrival."""

    phase: Phase
    began_s: float
    ended_s: float


class TracedClock(PhaseClock):
    """A clock that also keeps the time of each phase, for a request with spans."""

    __slots__ = ("marks", "started_ns")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(clock)
        self.started_ns = time.time_ns()
        """Nanoseconds since 1970."""
        self.marks: list[Mark] = []

    def end(self, phase: Phase) -> None:
        began_s = self.total_s
        super().end(phase)
        self.marks.append(Mark(phase, began_s, self.total_s))

    def end_split(self, phase: Phase, inner: Phase, inner_s: float) -> None:
        """See `PhaseClock`. The inner phase belongs to another process, which creates its span."""
        began_s = self.total_s
        super().end_split(phase, inner, inner_s)
        self.marks.append(Mark(phase, began_s, self.total_s))


class AttemptTrace:
    """One attempt's data for spans. Times are seconds after the request's arrival."""

    __slots__ = (
        "asked_s",
        "ended_s",
        "engine",
        "engine_span_id",
        "error_code",
        "finish",
        "granted_s",
        "route_span_id",
        "tracker",
        "usage",
    )

    def __init__(self) -> None:
        self.route_span_id, self.engine_span_id = new_span_id(), new_span_id()
        self.asked_s: float | None = None
        """Time of the call to the router; None without a call."""
        self.granted_s: float | None = None
        """Time of the lease; None without a lease."""
        self.ended_s = 0.0
        self.engine: Engine | None = None
        self.finish = ""
        self.error_code: str | None = None
        self.usage = Usage()
        self.tracker: UsageTracker | None = None
        """Has the engine's finish reasons."""

    @property
    def served(self) -> bool:
        """Whether an engine was called."""
        return self.granted_s is not None and self.engine is not None


def header(context: TraceContext, span_id: str) -> bytes:
    """A line of a request's head. span_id: the caller's span; empty for the process's own."""
    return b"traceparent: %b\r\n" % context.traceparent(span_id).encode()


class RequestTrace:
    """A request's trace. clock: the request's clock if it gets spans; else None."""

    __slots__ = ("_header", "attempts", "clock", "context")

    def __init__(self, context: TraceContext, clock: TracedClock | None) -> None:
        self.context = context
        self.clock = clock
        self.attempts: list[AttemptTrace] = []
        self._header = b""

    @property
    def header(self) -> bytes:
        """The header of a call to an engine outside of any span."""
        if not self._header:
            self._header = header(self.context, "")
        return self._header

    @property
    def id(self) -> str | None:
        """Id of the trace; None if it cannot be found."""
        return self.context.trace_id if self.context.known_elsewhere else None

    def attempt(self) -> AttemptTrace | None:
        """Begin an attempt. Returns None if the request gets no spans."""
        if self.clock is None:
            return None
        self.attempts.append(AttemptTrace())
        return self.attempts[-1]
