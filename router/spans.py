"""Records a span for each lease request of a traced request, until it is granted, refused or withdrawn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from contracts.lease import LeaseRequest
from router.core.decisions import Granted, Refused
from router.core.events import Acquire, Cancel, Event, GatewayDisconnected
from telemetry import attributes as name
from telemetry.sampler import following
from telemetry.span import Span, Value
from telemetry.trace_context import TraceContext

if TYPE_CHECKING:
    from telemetry.tracing import Tracing

MAX_WAITING = 10_000


class _Ask(msgspec.Struct, frozen=True):
    connection: int
    ask: LeaseRequest
    trace: TraceContext
    began_ns: int


class PlacementSpans:
    """Watches the core's events and decisions."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing
        self._waiting: dict[str, _Ask] = {}
        """Unanswered traced requests by lease id."""

    def told(self, event: Event) -> None:
        """Process an event before the core does."""
        if isinstance(event, Acquire):
            trace = following(event.ask.traceparent)
            if trace is not None and len(self._waiting) < MAX_WAITING:
                # a request that is sent again after a lost connection has waited since it was first sent
                self._waiting.setdefault(event.ask.lease_id, _Ask(event.connection, event.ask, trace, time.time_ns()))
        elif isinstance(event, Cancel):
            if (ask := self._waiting.pop(event.lease_id, None)) is not None:
                self._end(ask, {name.FINISH: "withdrawn"})
        elif isinstance(event, GatewayDisconnected):
            lost = [lease for lease, ask in self._waiting.items() if ask.connection == event.connection]
            for lease_id in lost:
                self._end(self._waiting.pop(lease_id), {name.FINISH: "disconnected"})

    def decided(self, decision: Granted | Refused) -> None:
        """Process a decision of the core."""
        if isinstance(decision, Refused):
            if (ask := self._waiting.pop(decision.lease_id, None)) is not None:
                outcome = {name.FINISH: "refused", name.REASON: decision.cause.value, name.ERROR_TYPE: decision.code}
                self._end(ask, outcome, failed=True)
            return
        lease = decision.lease
        if (ask := self._waiting.pop(lease.lease_id, None)) is not None:
            outcome = {name.FINISH: "granted", name.REPLICA: lease.engine.replica_id, name.POOL: lease.engine.pool}
            self._end(ask, outcome, queued_s=lease.queued_s)

    def _end(self, ask: _Ask, outcome: dict[str, Value], *, queued_s: float = 0.0, failed: bool = False) -> None:
        ended_ns, trace, request = time.time_ns(), ask.trace, ask.ask
        attributes: dict[str, Value] = {
            name.REQUEST_ID: request.request_id,
            name.ORGANIZATION_ID: request.organization_id,
            name.ATTEMPT: request.attempt,
            name.TIER: request.tier.value,
            name.REQUEST_MODEL: request.model,
        }
        spans = [
            Span(
                "place", trace.parent_id, ask.began_ns, ended_ns, attributes | outcome, "server", trace.span_id, failed
            ),
        ]
        if queued_s > 0:
            spans.append(Span("queue", trace.span_id, max(ask.began_ns, ended_ns - round(queued_s * 1e9)), ended_ns))
        self._tracing.add(trace, spans)
