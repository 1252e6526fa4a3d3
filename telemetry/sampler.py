"""Decides which requests are traced. Pure but for chance."""

from __future__ import annotations

import random
from collections.abc import Callable

from telemetry.trace_context import TraceContext, new_span_id, new_trace_id, parse, parse_state


class Sampler:
    """A gateway's: every request gets a place in a trace, and a few of them spans."""

    def __init__(
        self, ratio: float, *, trust_client: bool = False, chance: Callable[[], float] = random.random
    ) -> None:
        """ratio: part of the requests. trust_client: a client's decision goes before it. chance: uniform in [0, 1)."""
        self._ratio = ratio
        self._trust_client = trust_client
        self._chance = chance
        self._unchosen = TraceContext(new_trace_id(), new_span_id(), sampled=False)

    def begin(self, traceparent: str, tracestate: str = "") -> TraceContext:
        """Where a request stands that came with these headers; "": without.

        Requests that nobody traces share a place, from one that is chosen to the next: nobody tells them apart by it.

        Strangers choose trace ids as they like, so that the decision may not be made of them: by the usual rule, which
        compares the id with the ratio, they would have every request of theirs traced.
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
    """Where a router or an engine stands, which follow the gateway's decision. None: no spans are made."""
    parent = parse(traceparent) if traceparent else None
    if parent is None or not parent.sampled:
        return None
    return TraceContext(parent.trace_id, new_span_id(), sampled=True, parent_id=parent.span_id)
