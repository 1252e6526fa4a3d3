"""`slipstream config`: look at settings without starting anything."""

from __future__ import annotations

from pathlib import Path

import click

from slipstream.commands.options import config_option, data_option, load_settings


@click.group()
def config() -> None:
    """Check or show the settings."""


@config.command()
@config_option
def check(config_file: Path | None) -> None:
    """Say whether `up` would take the settings, and the files they name; exit code 2 with one line about the first
    fault. Starts and makes nothing."""
    from slipstream import start_check

    start_check.check(load_settings(config_file))
    print("settings are valid")


@config.command()
@config_option
@data_option
def show(config_file: Path | None, data: str | None) -> None:
    """Print every setting with the value it has after file and environment, as TOML. URLs may hold passwords."""
    from slipstream import toml

    print(toml.dump(load_settings(config_file, local__data=data)), end="")
