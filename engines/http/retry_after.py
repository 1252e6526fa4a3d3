"""Reads how long an engine asks to be left alone: the `Retry-After` of RFC 9110, in seconds or as a date."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

SHORTEST_S = 1.0
LONGEST_S = 60.0
"""Whoever is told more goes away for longer than any engine here stays full."""


def retry_after_s(value: bytes, now_s: float) -> float | None:
    """The wait that a header's value asks for, within a second and a minute; None when it cannot be read.

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
