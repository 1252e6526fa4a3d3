"""Counts requests and attempts, and measures customers' latency."""

from __future__ import annotations

from contracts.errors import Overloaded
from contracts.service_class import yields
from gateway.http.response import ResponseWriter
from gateway.observability.metrics import GatewayMetrics
from gateway.serving.attempt import Attempt
from gateway.serving.observers import RequestObserver
from gateway.serving.request import InferenceRequest


class RequestMetrics(RequestObserver):
    """Measures requests. Customers' figures leave out the deployment's own requests, which run last on purpose."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics

    def arrived(self, request: InferenceRequest) -> None:
        """Count a customer's request as active."""
        if request.purpose is None:
            self._metrics.began(request.tier)

    def superseded(self, request: InferenceRequest, stage: str) -> None:
        self._metrics.superseded(stage)

    def aborted(self, cause: str, after_s: float) -> None:
        """Measure how long an engine continued a request that had ended."""
        self._metrics.aborted(cause, after_s)

    def attempted(self, attempt: Attempt) -> None:
        """Count the attempt, and its tokens if a customer pays for them."""
        tier = attempt.request.tier
        self._metrics.attempted(tier, str(attempt.finish), str(attempt.outcome))
        if attempt.billed:
            self._metrics.observe_usage(tier, attempt.opened.model, attempt.usage)

    def ended(self, request: InferenceRequest, response: ResponseWriter) -> None:
        """Count the response, and measure its phases if objectives cover it."""
        metrics = self._metrics
        status, code = response.status or 499, response.error_code or "none"
        if request.purpose is not None:
            metrics.asked_by_us(request.purpose, status, code)
            return
        error = response.error
        over_share = isinstance(error, Overloaded) and error.over_share
        metrics.ended(request.tier, request.endpoint, status, code, over_share=over_share)
        if not yields(request.generation.priority):  # objectives use these figures, and none covers it
            metrics.observe_phases(request.tier, request.clock.durations_s)
            metrics.latency.observe(request.tier, request.model, request.measurement, request.timing)
