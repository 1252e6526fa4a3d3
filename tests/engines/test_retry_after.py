"""How long engines ask to be left alone."""

from __future__ import annotations

import pytest

from engines.http.retry_after import retry_after_s

NOW_S = 1_445_412_470.0  # Wed, 21 Oct 2015 07:27:50 GMT


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        (b"20", 20.0),
        (b" 7 ", 7.0),
        (b"0", 1.0),
        (b"9" * 400, 60.0),
        (b"Wed, 21 Oct 2015 07:28:00 GMT", 10.0),
        (b"Wed, 21 Oct 2015 07:27:00 GMT", 1.0),
        (b"Wed, 21 Oct 2099 07:28:00 GMT", 60.0),
        (b"", None),
        (b"soon", None),
        (b"-3", None),
        (b"\xb2", None),
        (b"1.5", None),
        (b"Wed, 99 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_seconds_and_dates_are_read_within_bounds(value: bytes, wait_s: float | None) -> None:
    assert retry_after_s(value, NOW_S) == wait_s
