"""The parts of a running gateway that reports about completions need."""

from __future__ import annotations

from gateway.autocomplete.event_rate import EventRate
from gateway.autocomplete.report_window import ReportWindow
from gateway.autocomplete.store import EventStore
from gateway.serving.endpoint import InferenceServices


class CompletionServices(InferenceServices, kw_only=True):
    """References only; each part owns its own state."""

    completion_events: EventStore
    event_rate: EventRate
    report_window: ReportWindow
