"""The root of the command line: an option or a command that there is not is answered with the one that may be meant.

click proposes whatever is somewhat alike (`--help` for `--email`, `prices` for `priorities`), and knows neither that a
command takes the same thing without an option nor what another one does beside what its name says.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any

import click

ALIKE = 0.75
LIMITS = "Classes and shares are set beside limits: slipstream limits set --class … --share …"
ELSEWHERE = MappingProxyType(dict.fromkeys(("priorities", "priority", "shares", "share", "classes", "class"), LIMITS))
"""Words of the docs that are looked for as commands, and where what they name is done."""


class CommandLine(click.Group):
    """Passes every refusal of an option through `corrected`, and knows words that are no commands."""

    def invoke(self, context: click.Context) -> Any:
        """Raises NoSuchOption, corrected."""
        try:
            return super().invoke(context)
        except click.NoSuchOption as error:
            raise corrected(error) from None

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Raises UsageError, which says of a word that it knows where that is done."""
        if words[0] in ELSEWHERE and self.get_command(context, words[0]) is None:
            raise click.UsageError(f"No such command {words[0]!r}. {ELSEWHERE[words[0]]}", context)
        return super().resolve_command(context, words)


def corrected(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error to tell, with only what is nearly the same name; for the name of an argument, how that is given."""
    name = error.option_name.lstrip("-")
    if error.ctx is not None:
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
