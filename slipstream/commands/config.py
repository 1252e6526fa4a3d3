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
    """Say whether the settings are valid; exit code 2 with one line about the first fault."""
    from contracts.desired_state import DesiredState
    from slipstream import model_folder

    settings = load_settings(config_file)
    DesiredState(version=1, models=settings.models, pools=settings.pools).check()
    if not settings.models:
        local = settings.local
        model_folder.read(local.chat_model, "slipstream-chat", "local.chat_model", needs_chat_template=True)
        model_folder.read(local.code_model, "slipstream-code", "local.code_model", needs_chat_template=False)
    print("settings are valid")


@config.command()
@config_option
@data_option
def show(config_file: Path | None, data: str | None) -> None:
    """Print every setting with the value it has after file and environment, as TOML. URLs may hold passwords."""
    from slipstream import toml

    print(toml.dump(load_settings(config_file, local__data=data)), end="")
