"""Decides which requests are traced. Pure except for its random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable

from telemetry.trace_context import TraceContext, new_span_id, new_trace_id, parse, parse_state


class Sampler:
    """A gateway's sampler: every request gets a trace context, and some get spans."""

    def __init__(
        self, ratio: float, *, trust_client: bool = False, chance: Callable[[], float] = random.random
    ) -> None:
        """ratio: share of the requests. trust_client: a client's decision takes precedence. chance: uniform in [0,
        1)."""
        self._ratio = ratio
        self._trust_client = trust_client
        self._chance = chance
        self._unchosen = TraceContext(new_trace_id(), new_span_id(), sampled=False)

    def begin(self, traceparent: str, tracestate: str = "") -> TraceContext:
        """The trace context of a request with these headers, empty if absent.

        Untraced requests share a context from one traced request to the next, because it identifies none of them.

        Clients choose trace ids freely, so the decision must not depend on them: by the usual rule, which compares the
        id with the ratio, a client could have all its requests traced.
        """
        parent = parse(traceparent) if traceparent else None
        if parent is None:
            if self._chance() >= self._ratio:
                return self._unchosen
            self._unchosen = TraceContext(new_trace_id(), new_span_id(), sampled=False)
            return TraceContext(new_trace_id(), new_span_id(), sampled=True)
        sampled = parent.sampled if self._trust_client else self._chance() < self._ratio
        return TraceContext(
            parent.trace_id, new_span_id(), sampled, parent.span_id, parse_state(tracestate) if sampled else ""
        )


def following(traceparent: str) -> TraceContext | None:
    """The context of a router or an engine, which follow the gateway's decision. None if no spans are made."""
    parent = parse(traceparent) if traceparent else None
    if parent is None or not parent.sampled:
        return None
    return TraceContext(parent.trace_id, new_span_id(), sampled=True, parent_id=parent.span_id)
