"""Hours, days and weeks in UTC, for totals."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta


def hour_of(moment: datetime) -> datetime:
    """The beginning of the hour of a time in UTC."""
    return moment.replace(minute=0, second=0, microsecond=0)


def midnight(day: date) -> datetime:
    """The beginning of a day, or of the day of a time, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def week_of(day: date) -> date:
    """The Monday of a day's week."""
    return day - timedelta(days=day.weekday())
