"""Types of options for time: spans (90s, 30m, 2h, 1d), and moments, which are a span ago or a time in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

SPAN = "90s, 30m, 2h or 1d"
MOMENT = f"{SPAN} ago, or a time such as 2026-11-22T10:31 (UTC)"
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
LONGEST = timedelta(days=3_650)
"""Longer than any retention; a much longer span has no date."""
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")


def span(text: str, longest: timedelta = LONGEST) -> timedelta:
    """The span. Raises BadParameter if the text is no span, or if it is 0 or longer than `longest`."""
    found = _span(text, longest)
    if not found:
        raise click.BadParameter(f"{text!r} is not a duration; write one such as {SPAN}")
    return found


def moment(text: str, longest: timedelta = LONGEST) -> datetime:
    """The moment in UTC. Raises BadParameter if the text is no moment, or if it is further away than `longest`."""
    now = datetime.now(UTC)
    ago = _span(text, longest)
    if ago is not None:
        return now - ago
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time; write {MOMENT}") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    if abs(found - now) > longest:
        raise click.BadParameter(f"{text!r} is more than {longest.days:,} days away; write {MOMENT}")
    return found.astimezone(UTC)


def _span(text: str, longest: timedelta) -> timedelta | None:
    """The span, or None if the text is no span."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    length = timedelta(**{UNITS[found[2]]: int(found[1])}) if int(found[1]) <= LONGEST.total_seconds() else None
    if length is None or length > longest:
        raise click.BadParameter(f"{text!r} is too long: {longest.days:,}d is the maximum")
    return length
