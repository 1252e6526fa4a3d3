"""An option that a command has not is answered with the one that is meant, with the argument it is, or with nothing."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from slipstream.__main__ import cli
from slipstream.command_line import LIMITS


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("up --gatewys 2", "No such option '--gatewys'. Did you mean '--gateways'?"),
        ("--verson", "No such option '--verson'. Did you mean '--version'?"),
        ("keys list --email a@b", "No such option '--email'."),
        (
            "members add --organization x --email a@b",
            "No such option '--email'. EMAIL is given without an option's name.",
        ),
        ("projects create --name web", "No such option '--name'. NAME is given without an option's name."),
    ],
)
def test_an_option_that_there_is_not(line: str, said: str) -> None:
    answer = CliRunner().invoke(cli, line.split())
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"Error: {said}"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("priorities", f"No such command 'priorities'. {LIMITS}"),
        ("share", f"No such command 'share'. {LIMITS}"),
        ("limit", "No such command 'limit'. Did you mean 'limits'?"),
    ],
)
def test_a_command_that_there_is_not(word: str, said: str) -> None:
    answer = CliRunner().invoke(cli, [word, "set"])
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"Error: {said}"


def test_the_help_leads_from_priorities_to_limits() -> None:
    def told(*words: str) -> str:
        return " ".join(CliRunner().invoke(cli, [*words, "--help"]).output.split())

    assert "limits Limits, class and share of organizations" in told()
    assert "class and share decide who goes first" in told("limits")
