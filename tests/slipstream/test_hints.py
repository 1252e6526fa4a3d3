"""A command that a message tells people to run concerns the deployment that the message came from."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from slipstream.commands.options import config_option, data_option
from slipstream.hints import command


@click.group()
@click.option("--data")
def outer(data: str | None) -> None:
    """A group that may know the folder."""


@outer.command()
@data_option
@config_option
def inner(data: str | None, config_file: str | None) -> None:
    """Prints a hint."""
    print(command("keys list"))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (["inner"], "slipstream keys list"),
        (["inner", "--data", "d"], "slipstream keys list --data d"),
        (["--data", "d", "inner"], "slipstream keys list --data d"),
        (["inner", "--data", "my dir", "--config", "a.toml"], "slipstream keys list --data 'my dir' --config a.toml"),
    ],
)
def test_a_hint_has_the_options_of_the_command_that_prints_it(given: list[str], hint: str) -> None:
    assert CliRunner().invoke(outer, given).output == f"{hint}\n"


def test_without_a_command_the_words_stand_alone() -> None:
    assert command("status") == "slipstream status"


@pytest.mark.parametrize(
    ("called", "found", "name"),
    [
        (".venv/bin/slipstream", None, ".venv/bin/slipstream"),
        ("/srv/my venv/bin/slipstream", None, "'/srv/my venv/bin/slipstream'"),
        ("/srv/venv/bin/slipstream", "/srv/venv/bin/slipstream", "slipstream"),
        ("slipstream", None, "slipstream"),
        ("/srv/slipstream/__main__.py", None, "slipstream"),
    ],
)
def test_a_shell_that_does_not_find_the_program_is_given_its_path(
    called: str, found: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [called])
    monkeypatch.setattr("shutil.which", lambda _: found)
    assert command("keys list") == f"{name} keys list"
