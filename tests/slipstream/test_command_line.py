"""An option that a command has not is answered with the one that is meant, with the argument it is, or with nothing."""

from __future__ import annotations

import importlib
import pkgutil
import re

import click
import pytest
from click.testing import CliRunner

from slipstream import commands
from slipstream.__main__ import cli
from slipstream.command_line import SET_WITH_LIMITS
from slipstream.command_table import ENTRIES, GROUPS, MOVED, WITHIN, loaded

MAX_COMMANDS, SCREEN_LINES = 25, 40


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("up --gatewys 2", "No such option '--gatewys'. Did you mean '--gateways'?"),
        ("--verson", "No such option '--verson'. Did you mean '--version'?"),
        ("keys list --email a@b", "No such option '--email'."),
        (
            "customers members add --organization x --email a@b",
            "No such option '--email'. EMAIL is given without an option's name.",
        ),
        ("customers projects create --name web", "No such option '--name'. NAME is given without an option's name."),
        (
            "--data /srv/x status",
            "No such option '--data'. It belongs after the command: slipstream status --data /srv/x",
        ),
        (
            "--config=own.toml releases show chat",
            "No such option '--config'. It belongs after the command: slipstream releases show chat --config=own.toml",
        ),
        (
            "releases --data x show chat",
            "No such option '--data'. It belongs after the command: slipstream releases show chat --data x",
        ),
        (
            "releases --json list",
            "No such option '--json'. It belongs after the command: slipstream releases list --json",
        ),
        ("--data x tools plan", "No such option '--data'."),
        (
            "tools plan --data x",
            "No such option '--data'. slipstream tools plan does not use a deployment: leave it out.",
        ),
        ("status --version", "No such option '--version'. It belongs before the command: slipstream --version"),
    ],
)
def test_an_option_that_there_is_not(line: str, said: str) -> None:
    answer = CliRunner().invoke(cli, line.split(), prog_name="slipstream")
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"Error: {said}"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("priorities", f"No such command 'priorities'. {SET_WITH_LIMITS}"),
        ("share", f"No such command 'share'. {SET_WITH_LIMITS}"),
        ("limit", "No such command 'limit'. Did you mean 'customers limits'?"),
    ],
)
def test_a_command_that_there_is_not(word: str, said: str) -> None:
    answer = CliRunner().invoke(cli, [word, "set"])
    assert answer.exit_code == 2
    assert answer.stderr.splitlines()[-1] == f"Error: {said}"


def test_the_help_leads_from_priorities_to_limits() -> None:
    def told(*words: str) -> str:
        return " ".join(CliRunner().invoke(cli, [*words, "--help"]).output.split())

    assert "limits Set and show limits, class and share of organizations" in told("customers")
    assert "Class and share decide which requests go first" in told("customers", "limits")


@pytest.mark.parametrize("name", ENTRIES)
def test_the_table_holds_each_commands_own_line(name: str) -> None:
    command = cli.commands[name]
    assert command.name == name
    assert ENTRIES[name].help == command.get_short_help_str(10_000)


def test_every_command_is_in_the_table() -> None:
    modules = [
        importlib.import_module(f"{commands.__name__}.{each.name}") for each in pkgutil.iter_modules(commands.__path__)
    ]
    made = [value for module in modules for value in vars(module).values() if isinstance(value, click.Command)]
    inner = {id(command) for group in made if isinstance(group, click.Group) for command in group.commands.values()}
    outer = {command.name for command in made if id(command) not in inner}
    assert outer == {*ENTRIES, *MOVED}


@pytest.mark.parametrize("columns", [80, 200])
def test_the_list_of_commands_shows_each_in_its_group_and_cuts_none(columns: int) -> None:
    shown = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, ["--help"]).output
    assert max(map(len, shown.splitlines())) <= min(columns, 100)
    sections = dict(re.findall(r"^(\S.*):\n((?: .+\n)+)", shown, re.MULTILINE))
    *tasks, processes = GROUPS
    for title in tasks:
        told = " ".join(sections[title].split())
        assert told == " ".join(f"{name} {' '.join(entry.help.split())}" for name, entry in GROUPS[title].items())
    assert sections[processes].split() == ", ".join(GROUPS[processes]).split()
    assert len(ENTRIES) <= MAX_COMMANDS
    assert len(shown.splitlines()) <= SCREEN_LINES


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, within in WITHIN.items() for name in within])
def test_a_group_lists_the_commands_of_other_modules(group: str, name: str) -> None:
    command = loaded(name, WITHIN[group][name])
    assert (command.name, command.get_short_help_str(10_000)) == (name, WITHIN[group][name].help)
    assert re.search(rf"^  {name} ", CliRunner().invoke(cli, [group, "--help"]).output, re.MULTILINE)


def test_an_old_spelling_is_answered_with_the_new_one() -> None:
    old, new = (CliRunner().invoke(cli, [*words, "set", "--help"]) for words in (["limits"], ["customers", "limits"]))
    assert old.stdout == new.stdout
    assert (old.stderr, new.stderr) == ("note: `slipstream limits` is now `slipstream customers limits`\n", "")
