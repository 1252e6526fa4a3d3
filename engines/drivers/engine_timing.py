"""Reads what the embedded engine tells of a request's time, beside its usage. No other engine tells it in a stream."""

from __future__ import annotations

import math
from typing import Any

from contracts.usage import EngineTiming


def timing_of(extension: Any) -> EngineTiming | None:
    """What `sglext` tells in `request_timing`; None where it tells nothing that can be read."""
    told = extension.get("request_timing") if isinstance(extension, dict) else None
    if not isinstance(told, dict):
        return None
    try:
        queue_s, prefill_s = float(told["queue_ms"]) / 1e3, float(told["prefill_ms"]) / 1e3
        retractions = int(told["retractions"])
    except (KeyError, OverflowError, TypeError, ValueError):
        return None
    if not all(math.isfinite(value) and value >= 0 for value in (queue_s, prefill_s, retractions)):
        return None
    return EngineTiming(queue_s, prefill_s, retractions)
