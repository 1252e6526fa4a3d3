"""Spans of time as a shell gives them: 90s, 30m, 2h, 1d."""

from __future__ import annotations

import re
from datetime import timedelta

from contracts.errors import ConfigError

SPAN = "90s, 30m, 2h or 1d"
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def span(text: str) -> timedelta:
    """Raises ConfigError for what is none, or is nothing."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None or not int(found[1]):
        raise ConfigError(f"{text!r} is no span of time: give one such as {SPAN}")
    return timedelta(**{UNITS[found[2]]: int(found[1])})
