"""Request ids begin with the time of arrival, so that the ledger's key alone determines a row's daily partition.

    req_ | milliseconds since 1970, 12 hex digits | 24 random hex digits

All attempts of a request, and every repetition of a row, are therefore in one partition, where the database keeps them
unique. Ids sort by time, which is the order of the ledger's pages.
"""

from __future__ import annotations

import secrets
import time

PREFIX = "req_"
LENGTH = 40
_FIRST_MS = 1_577_836_800_000  # 2020; earlier ids have no daily partition
_LAST_MS = 4_102_444_800_000  # 2100
DAY_S = 86_400


FIRST_DATED = f"{PREFIX}{_FIRST_MS:012x}"
PAST_DATED = f"{PREFIX}{_LAST_MS:012x}"
"""Ids from FIRST_DATED up to PAST_DATED contain a time and lie in a daily partition."""


def mint(now_s: float | None = None) -> str:
    """A new id. now_s: epoch seconds of arrival; None for the current time."""
    return f"{first_at(time.time() if now_s is None else now_s)}{secrets.token_hex(12)}"


def first_at(at_s: float) -> str:
    """The lower bound of the ids of requests that arrived at `at_s` (epoch seconds) or later."""
    return f"{PREFIX}{int(at_s * 1000):012x}"


def arrived_at_s(request_id: str) -> float | None:
    """The request's time of arrival in epoch seconds; None for an id of another form."""
    if len(request_id) != LENGTH:
        return None
    return _moment_s(request_id)


def day_of(request_id: str) -> int | None:
    """The day of the id's partition, counted from 1970-01-01; None if the id is in the first or the last partition.

    Like the partitions, and unlike `arrived_at_s`, it uses only the beginning of the id.
    """
    moment_s = _moment_s(request_id)
    return None if moment_s is None else int(moment_s // DAY_S)


def _moment_s(request_id: str) -> float | None:
    try:
        moment_ms = int(request_id[4:16], 16)
    except ValueError:
        return None
    return moment_ms / 1000 if _FIRST_MS <= moment_ms < _LAST_MS else None
