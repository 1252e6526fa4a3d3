"""`python -m training`: makes the models that come with Slipstream, one command a step.

Each command lives in a file of its own, `training/<command>_command.py`, as a click command named `command`, and is
imported when it is called.
"""

from __future__ import annotations

import importlib

import click

COMMANDS = ("tokenizer", "corpus", "code", "chat", "head", "export", "evaluate")


class Commands(click.Group):
    """Finds a command's file when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"training.{cmd_name}_command").command
        return command


@click.command(cls=Commands)
def main() -> None:
    """Make the models that come with Slipstream."""


if __name__ == "__main__":
    main()
