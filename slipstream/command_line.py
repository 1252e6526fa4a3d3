"""The root of the command line: an option that there is not is answered with one that may be meant, or with its place.

click proposes whatever is somewhat alike (`--help` for `--email`), and does not know that a command takes the same
thing without an option.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Any

import click

ALIKE = 0.75


class CommandLine(click.Group):
    """Passes every refusal of an option through `corrected`."""

    def invoke(self, context: click.Context) -> Any:
        """Raises NoSuchOption, corrected."""
        try:
            return super().invoke(context)
        except click.NoSuchOption as error:
            raise corrected(error) from None


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
