"""Parses an engine's `Retry-After` (RFC 9110), in seconds or as a date."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

SHORTEST_S = 1.0
LONGEST_S = 60.0
"""Upper bound, because no engine here stays full for longer."""


def retry_after_s(value: bytes, now_s: float) -> float | None:
    """The wait in a header's value, limited to between a second and a minute; None if it cannot be parsed.

    now_s: seconds since the epoch.
    """
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        wait_s = float(text)
    else:
        try:
            wait_s = parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, OverflowError):
            return None
    return max(SHORTEST_S, min(wait_s, LONGEST_S))
