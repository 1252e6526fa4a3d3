"""A request's place in a trace while it runs, and when what happened, if spans are to be made of it.

Of a request that is not sampled only the ids are kept, for whoever is asked further.
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
    """A phase, from and to seconds after the request's arrival."""

    phase: Phase
    began_s: float
    ended_s: float


class TracedClock(PhaseClock):
    """A clock that also keeps when each phase was, of a request that spans are made of."""

    __slots__ = ("marks", "started_ns")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(clock)
        self.started_ns = time.time_ns()
        """Since 1970."""
        self.marks: list[Mark] = []

    def end(self, phase: Phase) -> None:
        """As of any clock."""
        began_s = self.total_s
        super().end(phase)
        self.marks.append(Mark(phase, began_s, self.total_s))

    def end_split(self, phase: Phase, inner: Phase, inner_s: float) -> None:
        """As of any clock. The inner phase is another process', which makes a span of it."""
        began_s = self.total_s
        super().end_split(phase, inner, inner_s)
        self.marks.append(Mark(phase, began_s, self.total_s))


class AttemptTrace:
    """What spans say of one attempt, filled in as it is known. Times are seconds after the request's arrival."""

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
        """When the router was asked; None: it was not."""
        self.granted_s: float | None = None
        """When there was a lease; None: there was none."""
        self.ended_s = 0.0
        self.engine: Engine | None = None
        self.finish = ""
        self.error_code: str | None = None
        self.usage = Usage()
        self.tracker: UsageTracker | None = None
        """Heard what the engine said of its answer's end."""

    @property
    def served(self) -> bool:
        """An engine was asked."""
        return self.granted_s is not None and self.engine is not None


def header(context: TraceContext, span_id: str) -> bytes:
    """A line of a request's head. span_id: what asks; empty: the process' own."""
    return b"traceparent: %b\r\n" % context.traceparent(span_id).encode()


class RequestTrace:
    """clock: the request's, of one that spans are made of; None: of any other."""

    __slots__ = ("_header", "attempts", "clock", "context")

    def __init__(self, context: TraceContext, clock: TracedClock | None) -> None:
        self.context = context
        self.clock = clock
        self.attempts: list[AttemptTrace] = []
        self._header = b""

    @property
    def header(self) -> bytes:
        """For an engine that is asked by none of its spans."""
        if not self._header:
            self._header = header(self.context, "")
        return self._header

    @property
    def id(self) -> str | None:
        """Of the trace; None where nobody could find it by that."""
        return self.context.trace_id if self.context.known_elsewhere else None

    def attempt(self) -> AttemptTrace | None:
        """Of one that begins; None: there will be no spans."""
        if self.clock is None:
            return None
        self.attempts.append(AttemptTrace())
        return self.attempts[-1]
