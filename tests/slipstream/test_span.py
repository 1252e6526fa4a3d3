"""Spans of time, as a shell gives them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from contracts.errors import ConfigError
from slipstream.span import span


def test_units() -> None:
    assert [span(text) for text in ("90s", "30m", "2h", "1d")] == [
        timedelta(seconds=90),
        timedelta(minutes=30),
        timedelta(hours=2),
        timedelta(days=1),
    ]


@pytest.mark.parametrize("text", ["", "90", "0m", "-1h", "1.5h", "1w", "9999999s", "१m"])
def test_what_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="is no span of time"):
        span(text)
