"""The window in which an editor may report about a completion: an id carries the time of its request."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from contracts.dated_request_id import DAY_S, arrived_at_s
from contracts.errors import InvalidField

CLOCKS_APART_S = 3_600.0
"""Tolerance for clocks: an id has the time of its gateway. The totals allow the same (rollup.MARGIN)."""


class ReportWindow:
    """The window lasts from the oldest kept trace to now."""

    def __init__(self, trace_retention_days: int, clock: Callable[[], float] = time.time) -> None:
        self._retention_days = trace_retention_days
        self._clock = clock

    def require(self, request_id: str) -> None:
        """Raise InvalidField outside the window. request_id: an id that carries a time."""
        arrived_s, now_s = arrived_at_s(request_id) or 0.0, self._clock()
        if arrived_s > now_s + CLOCKS_APART_S:
            raise _refusal(arrived_s, "it may be an hour from now at most. Send the `id` of an answer.")
        if arrived_s < now_s - self._retention_days * DAY_S - CLOCKS_APART_S:
            raise _refusal(arrived_s, f"requests are kept for {self._retention_days} days. Leave the report out.")


def _refusal(arrived_s: float, rule: str) -> InvalidField:
    at = datetime.fromtimestamp(arrived_s, UTC)
    return InvalidField(
        f"Invalid value for 'completion_id': its time is {at:%Y-%m-%dT%H:%M:%SZ}, and {rule}", param="completion_id"
    )
