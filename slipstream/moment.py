"""Moments as a shell names them: so long ago, or a time in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d{1,6})([mhd])")


def moment(value: str) -> datetime:
    """`90m`, `24h` or `7d` ago; `2026-11-22` or `2026-11-22T10:31`, in UTC unless an offset is given.

    The type of an option. Raises BadParameter.
    """
    if ago := _AGO.fullmatch(value):
        return datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        given = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no moment; write 90m, 24h or 7d, or a time as 2026-11-22T10:31"
        ) from None
    return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)
