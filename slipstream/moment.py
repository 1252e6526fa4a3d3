"""Moments as a shell names them: so long ago, or a time in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_AGO = re.compile(r"(\d{1,6})([mhd])")


class Moment(click.ParamType[datetime]):
    """`90m`, `24h` or `7d` ago; `2026-11-22` or `2026-11-22T10:31`, in UTC unless an offset is given."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        if ago := _AGO.fullmatch(str(value)):
            return datetime.now(UTC) - timedelta(**{UNITS[ago[2]]: int(ago[1])})
        try:
            given = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no moment; write 90m, 24h or 7d, or a time as 2026-11-22T10:31", param, ctx)
        return given.astimezone(UTC) if given.tzinfo else given.replace(tzinfo=UTC)


MOMENT = Moment()
