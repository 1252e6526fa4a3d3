"""Hours, days and weeks in UTC, as totals are kept by them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta


def hour_of(moment: datetime) -> datetime:
    """The whole hour of a moment in UTC."""
    return moment.replace(minute=0, second=0, microsecond=0)


def midnight(day: date) -> datetime:
    """The beginning of a day, or of a moment's day in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def week_of(day: date) -> date:
    """The Monday of a day's week."""
    return day - timedelta(days=day.weekday())
