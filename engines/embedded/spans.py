"""Creates the spans of a traced request in the engine, for its wait, its prompt and its response."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engines.embedded.history import RequestUsage
from engines.embedded.live import LiveRequest
from telemetry import attributes as name
from telemetry.sampler import following
from telemetry.span import Span, Value

if TYPE_CHECKING:
    from telemetry.tracing import Tracing


class EngineSpans:
    """Spans of an engine's requests. model: the model's name."""

    def __init__(self, tracing: Tracing, model: str) -> None:
        self._tracing = tracing
        self._model = model

    def served(self, traceparent: str, path: str, arrived_ns: int, submitted_ns: int, live: LiveRequest) -> None:
        """Record a request that has ended, complete or not. arrived_ns: time of arrival; submitted_ns: time at which it
        was passed to the engine's thread."""
        trace = following(traceparent)
        if trace is None:
            return
        usage, ended_ns = live.usage(), time.time_ns()
        attributes: dict[str, Value] = {
            name.REQUEST_METHOD: "POST",
            name.ROUTE: path,
            name.LEASE_ID: live.request.rid,
            name.SERVED_MODEL: self._model,
            name.FINISH: "complete" if live.finished else "aborted",
            name.PROMPT_TOKENS: usage.prompt_tokens,
            name.PROMPT_TOKENS_CACHED: usage.cached_tokens,
            name.GENERATED_TOKENS: usage.completion_tokens,
        }
        root = Span(
            f"POST {path}", trace.parent_id, arrived_ns, ended_ns, attributes, "server", trace.span_id, live.failed
        )
        self._tracing.add(trace, [root, *_phases(trace.span_id, submitted_ns, ended_ns, usage)])


def _phases(parent_id: str, submitted_ns: int, ended_ns: int, usage: RequestUsage) -> Iterator[Span]:
    """The phases of the first choice, for whose prompt the others may have waited; none if its prompt did not end."""
    if not usage.timings:
        return
    timing, began_ns = usage.timings[0], submitted_ns
    for phase, took_s in (("queue", timing.queue_s), ("prefill", timing.prefill_s)):
        until_ns = min(began_ns + round(took_s * 1e9), ended_ns)
        yield Span(phase, parent_id, began_ns, until_ns)
        began_ns = until_ns
    yield Span("decode", parent_id, began_ns, ended_ns, {name.RETRACTIONS: timing.retractions})
