"""`python -m tools.training`: makes the models that come with Slipstream, with one command per step.

Each command is a click command called `command` in a file of its own, `tools/training/<name>_command.py`, which is
imported only when the command runs. The chat model's is `python -m tools.training chat`.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import click


class Commands(click.Group):
    """Imports a command's file only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(path.stem.removesuffix("_command") for path in Path(__file__).parent.glob("*_command.py"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"tools.training.{cmd_name}_command").command
        return command


@click.command(cls=Commands)
def main() -> None:
    """Make the models that come with Slipstream."""


if __name__ == "__main__":
    main()
