"""Request ids begin with the time of arrival, so that the ledger's key alone says which day's partition a row is in.

    req_ | milliseconds since 1970, 12 hex digits | 24 random hex digits

All attempts of a request, and every repetition of a row, therefore meet in one partition, where the database keeps them
unique. Ids are in order of time, which is the order of the ledger's pages.
"""

from __future__ import annotations

import secrets
import time

PREFIX = "req_"
LENGTH = 40
_FIRST_MS = 1_577_836_800_000  # 2020: before it there are no days
_LAST_MS = 4_102_444_800_000  # 2100
DAY_S = 86_400


FIRST_DATED = f"{PREFIX}{_FIRST_MS:012x}"
PAST_DATED = f"{PREFIX}{_LAST_MS:012x}"
"""Ids from the one up to the other carry a time, and lie in a day's partition."""


def mint(now_s: float | None = None) -> str:
    """A new id. now_s: epoch seconds of arrival; None: now."""
    return f"{first_at(time.time() if now_s is None else now_s)}{secrets.token_hex(12)}"


def first_at(at_s: float) -> str:
    """The lower bound of the ids of requests that arrived at `at_s` (epoch seconds) or later."""
    return f"{PREFIX}{int(at_s * 1000):012x}"


def arrived_at_s(request_id: str) -> float | None:
    """When it arrived, in epoch seconds; None for an id that is not of this form."""
    if len(request_id) != LENGTH:
        return None
    return _moment_s(request_id)


def day_of(request_id: str) -> int | None:
    """The day of its partition, counted from 1970-01-01; None when it lies in the first or the last.

    Unlike `arrived_at_s` it goes by the beginning alone, as the partitions do.
    """
    moment_s = _moment_s(request_id)
    return None if moment_s is None else int(moment_s // DAY_S)


def _moment_s(request_id: str) -> float | None:
    try:
        moment_ms = int(request_id[4:16], 16)
    except ValueError:
        return None
    return moment_ms / 1000 if _FIRST_MS <= moment_ms < _LAST_MS else None
