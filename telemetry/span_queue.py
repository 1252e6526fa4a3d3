"""Sends spans to the collector from a separate thread, so that no request waits for it.

It replaces the SDK's batch processor, which does not report dropped spans and may delay a stop by half a minute.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from telemetry.metrics import SpanMetrics
from telemetry.span import Span
from telemetry.trace_context import TraceContext

BATCH_SPANS = 256
EVERY_S = 5.0
"""Each export costs a millisecond of CPU, with few spans or many: at longer intervals more requests share it."""
STOP_S = 2.0
"""Time that a stop spends on waiting spans; an unresponsive collector costs no more."""

logger = logging.getLogger(__name__)


Make = Callable[[TraceContext, Span], ReadableSpan]


class SpanQueue:
    """A bounded queue. If the collector does not keep up, the newest spans are dropped and counted.

    The queue's thread makes the SDK's spans, some hundred at a time: made singly between requests, they cost three
    times as much.
    """

    def __init__(self, exporter: SpanExporter, make: Make, most_spans: int, metrics: SpanMetrics, place: str) -> None:
        """make: returns the SDK's span for a `Span`. place: the collector's address, for the log."""
        self._exporter = exporter
        self._make = make
        self._most_spans = most_spans
        self._metrics = metrics
        self._place = place
        self._traces: deque[tuple[TraceContext, Collection[Span]]] = deque()
        self._added = 0
        """Number of added spans; written by the event loop alone, as `_taken` is by the thread."""
        self._taken = 0
        self._wake = threading.Event()
        self._stopping = False
        self._abandoned = False
        self._refused = False
        """Whether the last batch was refused, which was logged."""
        self._reason = _LastWords()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def add(self, trace: TraceContext, spans: Collection[Span]) -> None:
        """Take a trace's spans, all or none; never waits. spans: iterated later, on another thread."""
        waiting, more = self._added - self._taken, len(spans)
        if waiting + more > self._most_spans:
            self._metrics.dropped.inc(more)
            return
        self._added += more
        self._traces.append((trace, spans))
        if waiting < BATCH_SPANS <= waiting + more:
            self._wake.set()

    def stop(self) -> None:
        """Send waiting spans, for at most `STOP_S`, and end."""
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_S)
        self._abandoned = True
        self._exporter.shutdown()  # ends a pause before the next try
        self._metrics.dropped.inc(self._added - self._taken)
        self._reason.close()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            while self._traces and not self._abandoned:
                self._send(self._batch())

    def _batch(self) -> list[ReadableSpan]:
        """A batch of whole traces."""
        made: list[ReadableSpan] = []
        while self._traces and len(made) < BATCH_SPANS:
            trace, spans = self._traces.popleft()
            made += [self._make(trace, span) for span in spans]
            self._taken += len(spans)
        return made

    def _send(self, batch: list[ReadableSpan]) -> None:
        if self._exporter.export(batch) is SpanExportResult.SUCCESS:
            self._metrics.exported.inc(len(batch))
            if self._refused:
                logger.info("%s takes spans again", self._place)
            self._refused = False
            return
        self._metrics.failed.inc(len(batch))
        if not self._refused and not self._stopping:
            logger.warning("spans dropped: %s refuses them: %s", self._place, self._reason.text)
        self._refused = True


class _LastWords(logging.Filter):
    """Keeps the reason of a failed export, which the exporter only logs, for every batch."""

    LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        logging.getLogger(self.LOGGER).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the record's text, and let no record pass."""
        self.text = record.getMessage()
        return False

    def close(self) -> None:
        """Stop filtering, for the next one."""
        logging.getLogger(self.LOGGER).removeFilter(self)
