"""Where the API key comes from, and that no message has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contracts.errors import ConfigError
from slipstream import settings
from tools.lsp.key import API_KEY_VARIABLE, take_key


def test_options_win_over_the_command_line_and_that_over_the_environment(tmp_path: Path) -> None:
    named, given = tmp_path / "named", tmp_path / "given"
    named.write_text("from-named\n")
    given.write_text("from-given\n")
    environ = {API_KEY_VARIABLE: "from-environment"}
    options: dict[str, Any] = {"api_key": "from-options", "url": "u"}
    assert take_key(options, given, environ) == "from-options"
    assert options == {"url": "u"}
    assert take_key({"api_key_file": str(named)}, given, environ) == "from-named"
    assert take_key({}, given, environ) == "from-given"
    assert take_key({}, None, environ) == "from-environment"
    assert take_key({}, None, {}) == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"api_key": "secret", "api_key_file": "f"}, "api_key: api_key_file is given too"),
        ({"api_key": "secret\nmore"}, "api_key: not an API key"),
        ({"api_key": ["secret"]}, "api_key: not an API key"),
        ({"api_key_file": ["secret"]}, "api_key_file: expected a path, got list"),
        ({"api_key_file": "nowhere"}, "api_key_file: nowhere: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_without_the_key(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        take_key(options, None, {})
    assert caught.value.message.startswith(said)
    assert "secret" not in caught.value.message


def test_an_empty_file_holds_no_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" \n")
    with pytest.raises(ConfigError, match="is empty"):
        take_key({}, file, {})


def test_the_key_in_the_environment_stops_no_other_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "sk-slip-1")
    settings.load(None)
