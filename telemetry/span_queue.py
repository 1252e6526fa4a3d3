"""Sends spans to the collector from a thread of its own: nothing that serves a request waits for it.

In place of the SDK's batch processor, which tells nobody what it drops and may hold up a stop for half a minute.
"""

from __future__ import annotations

import logging
import threading
from collections import deque

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from telemetry.metrics import SpanMetrics

BATCH_SPANS = 256
EVERY_S = 5.0
"""Each sending costs a millisecond of CPU, with few spans or many: rarer, it is shared by more requests."""
STOP_S = 2.0
"""What a stop spends on spans that wait; a collector that does not answer costs no more."""

logger = logging.getLogger(__name__)


class SpanQueue:
    """Bounded: where the collector does not keep up, spans are dropped and counted, the newest first."""

    def __init__(self, exporter: SpanExporter, most_spans: int, metrics: SpanMetrics, place: str) -> None:
        """place: the collector's, for the log."""
        self._exporter = exporter
        self._most_spans = most_spans
        self._metrics = metrics
        self._place = place
        self._spans: deque[ReadableSpan] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._abandoned = False
        self._refused = False
        """The last batch was not taken, and that was said."""
        self._said = _LastWords()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def add(self, span: ReadableSpan) -> None:
        """Take a span; never waits."""
        if len(self._spans) >= self._most_spans:
            self._metrics.dropped.inc()
            return
        self._spans.append(span)
        if len(self._spans) == BATCH_SPANS:
            self._wake.set()

    def stop(self) -> None:
        """Send what waits, for at most `STOP_S`, and end."""
        self._stopping = True
        self._wake.set()
        self._thread.join(STOP_S)
        self._abandoned = True
        self._exporter.shutdown()  # ends a pause before the next try
        self._metrics.dropped.inc(len(self._spans))
        self._said.close()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(EVERY_S)
            self._wake.clear()
            while self._spans and not self._abandoned:
                self._send([self._spans.popleft() for _ in range(min(BATCH_SPANS, len(self._spans)))])

    def _send(self, batch: list[ReadableSpan]) -> None:
        if self._exporter.export(batch) is SpanExportResult.SUCCESS:
            self._metrics.exported.inc(len(batch))
            if self._refused:
                logger.info("%s takes spans again", self._place)
            self._refused = False
            return
        self._metrics.failed.inc(len(batch))
        if not self._refused and not self._stopping:
            logger.warning("spans are given up: %s does not take them: %s", self._place, self._said.text)
        self._refused = True


class _LastWords(logging.Filter):
    """Keeps why an export failed, which the exporter only logs, and does so for every batch."""

    LOGGER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        logging.getLogger(self.LOGGER).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Nothing passes."""
        self.text = record.getMessage()
        return False

    def close(self) -> None:
        """Let the next one listen alone."""
        logging.getLogger(self.LOGGER).removeFilter(self)
