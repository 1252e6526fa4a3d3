"""Validates times in requests, and derives the periods of queries about usage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from contracts.errors import InvalidField

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
LAST = datetime(2100, 1, 1, tzinfo=UTC)


def has_utc(value: datetime) -> bool:
    """Whether the time has an offset and lies between the years 1 and 9999 in UTC."""
    if value.tzinfo is None:
        return False
    try:
        value.astimezone(UTC)
    except OverflowError:
        return False
    return True


def require_utc(value: datetime, param: str) -> None:
    """Raises InvalidField for a time that is invalid in UTC, which the database's driver could not send."""
    if not has_utc(value):
        raise InvalidField(
            f"Invalid value for '{param}': it must lie between the years 1 and 9999 in UTC.", param=param
        )


def moment(value: datetime, param: str) -> datetime:
    """Convert a time to UTC. Raises InvalidField for one outside the range of any ledger."""
    if not FIRST <= value <= LAST:
        raise InvalidField(f"Invalid value for '{param}': it must lie between 2020 and 2100.", param=param)
    return value.astimezone(UTC)


def period(start: datetime | None, end: datetime | None, usual: timedelta) -> tuple[datetime, datetime]:
    """A query's period in UTC. By default, it ends now, and begins `usual` before its end. Raises InvalidField."""
    until = datetime.now(UTC) if end is None else moment(end, "end")
    since = until - usual if start is None else moment(start, "start")
    if since >= until:
        raise InvalidField("Invalid value for 'end': it is not after 'start'.", param="end")
    return since, until


def month(text: str) -> tuple[datetime, datetime] | None:
    """The first moments of a month such as `2026-11` and of the next one, in UTC; None if the text is no month."""
    try:
        begin = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        return None
    if not FIRST <= begin < LAST or len(text) != len("2026-11"):
        return None
    return begin, begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
