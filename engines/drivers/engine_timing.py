"""Reads a request's timing that an engine sends with its usage: the embedded one always, vLLM when started with
`--enable-per-request-metrics`."""

from __future__ import annotations

import math
from typing import Any

from contracts.usage import EngineTiming

MAX_RETRACTIONS = 2**15 - 1
"""More than a column holds, and than any request has."""


def timing_of(extension: Any) -> EngineTiming | None:
    """The contents of `sglext.request_timing`, or of vLLM's `metrics`; None without a valid one."""
    if not isinstance(extension, dict):
        return None
    told = extension.get("request_timing", extension)
    if not isinstance(told, dict):
        return None
    # vLLM's time to first token begins when the request is scheduled; it reports no retractions here
    prefill_ms: Any = told.get("prefill_ms", told.get("time_to_first_token_ms"))
    queue_ms: Any = told.get("queue_ms", told.get("queue_time_ms"))
    try:
        queue_s, prefill_s = float(queue_ms) / 1e3, float(prefill_ms) / 1e3
        retractions = int(told.get("retractions", 0))
        grammar_s = float(told["grammar_ms"]) / 1e3 if "grammar_ms" in told else None
    except (OverflowError, TypeError, ValueError):
        return None
    if not all(math.isfinite(value) and value >= 0 for value in (queue_s, prefill_s, grammar_s or 0.0)):
        return None
    if not 0 <= retractions <= MAX_RETRACTIONS:
        return None
    return EngineTiming(queue_s, prefill_s, retractions, grammar_s)
