"""Weeks as totals are kept by them."""

from __future__ import annotations

from datetime import date, timedelta


def week_of(day: date) -> date:
    """The Monday it is counted from."""
    return day - timedelta(days=day.weekday())
