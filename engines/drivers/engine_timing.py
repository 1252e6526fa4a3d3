"""Reads a request's timing, which the embedded engine always sends with its usage, and vLLM if started with
`--enable-per-request-metrics`."""

from __future__ import annotations

import math
from typing import Any

from contracts.usage import EngineTiming

MAX_RETRACTIONS = 2**15 - 1
"""The largest value of the ledger's column; no request has so many."""


def timing_of(extension: Any) -> EngineTiming | None:
    """The timing in `sglext.request_timing` or in vLLM's `metrics`; None if it is missing or invalid."""
    if not isinstance(extension, dict):
        return None
    timing = extension.get("request_timing", extension)
    if not isinstance(timing, dict):
        return None
    # vLLM's time to first token begins when the request is scheduled; it reports no retractions here
    prefill_ms: Any = timing.get("prefill_ms", timing.get("time_to_first_token_ms"))
    queue_ms: Any = timing.get("queue_ms", timing.get("queue_time_ms"))
    try:
        queue_s, prefill_s = float(queue_ms) / 1e3, float(prefill_ms) / 1e3
        retractions = int(timing.get("retractions", 0))
        grammar_s = float(timing["grammar_ms"]) / 1e3 if "grammar_ms" in timing else None
    except (OverflowError, TypeError, ValueError):
        return None
    if not all(math.isfinite(value) and value >= 0 for value in (queue_s, prefill_s, grammar_s or 0.0)):
        return None
    if not 0 <= retractions <= MAX_RETRACTIONS:
        return None
    return EngineTiming(queue_s, prefill_s, retractions, grammar_s)
