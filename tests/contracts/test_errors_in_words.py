"""What the log says of an exception is never empty."""

from __future__ import annotations

import pytest

from contracts.errors import ConfigError, in_words


@pytest.mark.parametrize(
    ("error", "timeout_s", "words"),
    [
        (OSError(111, "Connection refused"), None, "ConnectionRefusedError: [Errno 111] Connection refused"),
        (ConfigError("a row cannot be read", detail="version 7"), 5.0, "ConfigError: a row cannot be read (version 7)"),
        (TimeoutError(), 2.5, "TimeoutError: no answer within 2.5 s"),
        (TimeoutError(), None, "TimeoutError: no answer in time"),
        (TimeoutError("of its own"), 2.5, "TimeoutError: of its own"),
        (RuntimeError(), None, "RuntimeError"),
    ],
)
def test_an_exception_without_text_is_told_by_its_type(error: Exception, timeout_s: float | None, words: str) -> None:
    assert in_words(error, timeout_s) == words
