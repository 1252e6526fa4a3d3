"""Spans and moments, as a shell gives them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from slipstream.moment import moment, span


def test_units() -> None:
    assert [span(text) for text in ("90s", "30m", "2h", "1d")] == [
        timedelta(seconds=90),
        timedelta(minutes=30),
        timedelta(hours=2),
        timedelta(days=1),
    ]


@pytest.mark.parametrize("text", ["", "90", "0m", "-1h", "1.5h", "1w", "9999999999s", "१m"])
def test_what_is_no_span_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration; write one such as 90s"):
        span(text)


@pytest.mark.parametrize("text", ["3651d", "999999d", "999999999d", "999999999s"])
def test_what_is_longer_than_anything_is_kept_is_refused(text: str) -> None:
    for read in (span, moment):
        with pytest.raises(click.BadParameter, match="3,650d is the maximum"):
            read(text)


def test_moments_are_so_long_ago_or_a_time_in_utc() -> None:
    before, found = datetime.now(UTC), moment("90s")
    assert timedelta(seconds=90) - timedelta(seconds=60) < before - found <= timedelta(seconds=90)
    assert moment("2026-11-22T10:31") == datetime(2026, 11, 22, 10, 31, tzinfo=UTC)
    assert moment("2026-11-22T10:31+02:00") == datetime(2026, 11, 22, 8, 31, tzinfo=UTC)


@pytest.mark.parametrize("text", ["yesterday", "9w", "", "0001-01-01T00:00+10:00", "9999-12-31T23:59-10:00"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s, 30m, 2h or 1d ago"):
        moment(text)
