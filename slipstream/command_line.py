"""The root of the command line: the error for an unknown option or command suggests the one that the user may mean.

click suggests any name that is somewhat similar (`--help` for `--email`, `prices` for `priorities`). It does not know
that a command takes a value as an argument, or that the function of an unknown word belongs to another command.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import click

from slipstream.command_table import ENTRIES, GROUPS, MOVED

ALIKE = 0.75
SET_WITH_LIMITS = "Set classes and shares together with limits: slipstream customers limits set --class … --share …"
ELSEWHERE = MappingProxyType(
    dict.fromkeys(("priorities", "priority", "shares", "share", "classes", "class"), SET_WITH_LIMITS)
)
"""Words of the docs that users try as commands, and the hint to the right command."""
DEPLOYMENT = ("--data", "--config")
"""Options by which most commands select their deployment."""
WORDS = "slipstream.words"
"""The key under which the context keeps the words after the program's name."""


class CommandLine(click.Group):
    """Passes every error of an unknown option through `corrected`, and gives hints on words that are no commands."""

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        """Raises NoSuchOption with a corrected hint."""
        if words and words[0] in MOVED and not context.resilient_parsing:
            click.echo(f"note: `slipstream {words[0]}` is now `slipstream {MOVED[words[0]]}`", err=True)
            words = [*MOVED[words[0]].split(), *words[1:]]
        context.meta[WORDS] = tuple(words)
        try:
            return super().parse_args(context, words)
        except click.NoSuchOption as error:
            raise corrected(error) from None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups from the table, without loading a command."""
        *tasks, processes = GROUPS
        column = max(len(name) for title in tasks for name in GROUPS[title])
        for title in tasks:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(column), entry.help) for name, entry in GROUPS[title].items()])
        with formatter.section(processes):
            formatter.write_text(", ".join(GROUPS[processes]))

    def invoke(self, context: click.Context) -> Any:
        """Raises NoSuchOption with a corrected hint."""
        try:
            return super().invoke(context)
        except click.NoSuchOption as error:
            raise corrected(error) from None

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError, which names the right command if it is known."""
        if words[0] in ELSEWHERE and self.get_command(context, words[0]) is None:
            raise click.UsageError(f"No such command {words[0]!r}. {ELSEWHERE[words[0]]}", context)
        from difflib import get_close_matches

        if words[0] not in ENTRIES and (near := get_close_matches(words[0], MOVED, 1)):
            raise click.UsageError(f"No such command {words[0]!r}. Did you mean {MOVED[near[0]]!r}?", context)
        return super().resolve_command(context, words)


def corrected(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error with a better hint: where the option belongs, how to pass its value, or only similar names."""
    from difflib import SequenceMatcher

    name = error.option_name.lstrip("-")
    if error.ctx is not None:
        hint = _placed(error.ctx, error.option_name)
        if hint:
            return click.NoSuchOption(error.option_name, f"{error.message} {hint}", ctx=error.ctx)
        for argument in error.ctx.command.params:
            if isinstance(argument, click.Argument) and argument.name == name.replace("-", "_"):
                metavar = argument.make_metavar(error.ctx)
                message = f"{error.message} {metavar} is given without an option's name."
                return click.NoSuchOption(error.option_name, message, ctx=error.ctx)
    alike = [
        option
        for option in error.possibilities or ()
        if SequenceMatcher(None, name, option.lstrip("-")).ratio() >= ALIKE
    ]
    return click.NoSuchOption(error.option_name, error.message, alike, error.ctx)


def _placed(context: click.Context, option: str) -> str:
    """A hint where a misplaced option belongs; empty if unknown."""
    command, root = context.command, context.find_root()
    if isinstance(command, click.Group):
        reordered = _behind(root, option)
        return f"It belongs after the command: {reordered}" if reordered else ""
    if option in _options(root.command):
        return f"It belongs before the command: {root.info_name} {option}"
    if option in DEPLOYMENT:
        return f"{context.command_path} does not use a deployment: leave it out."
    return ""


def _behind(root: click.Context, option: str) -> str:
    """The command line with the option after the command that has it; empty if the command does not have it."""
    words: Sequence[str] = root.meta.get(WORDS, ())
    at = next((at for at, word in enumerate(words) if word.partition("=")[0] == option), len(words))
    for taken in (1, 2) if "=" not in "".join(words[at : at + 1]) else (1,):
        rest = (*words[:at], *words[at + taken :])
        found, context = root.command, root
        for word in rest:
            if not isinstance(found, click.Group):
                break
            inner = found.get_command(context, word)
            if inner is None:
                break
            found = inner
        known = _options(found).get(option)
        if known is None or isinstance(found, click.Group) or (known.is_flag or "=" in words[at]) != (taken == 1):
            continue
        return shlex.join((str(root.info_name), *rest, *words[at : at + taken]))
    return ""


def _options(command: click.Command) -> dict[str, click.Option]:
    return {
        name: param
        for param in command.params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
