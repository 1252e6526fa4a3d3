"""`slipstream config`: checks and shows settings without starting anything."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from slipstream.command_table import Group
from slipstream.commands.options import config_option, data_option, load_settings


@click.group(cls=Group)
def config() -> None:
    """Check or show the settings; migrate the database."""


@config.command()
@config_option
@data_option
@click.option("--probe", is_flag=True, help="Also probe the engines: readiness, key, served names, context.")
def check(config_file: Path | None, data: str | None, probe: bool) -> None:
    """Check the settings as `up` does, the launches of `engines render`, and the files that they name. Exit code 2: the
    settings are wrong; one line describes the first fault. The command starts and creates nothing."""
    from slipstream import start_check
    from slipstream.launch_plan import local_pools, plan_launches, with_saved_ports
    from slipstream.launch_rendering import notes_of

    settings = load_settings(config_file, local__data=data)
    started = start_check.check(settings)
    if probe:
        from slipstream.database import live_fleet
        from slipstream.engine_probe import asked_of
        from slipstream.engine_probe import probe as probe_engines

        plan = asked_of(settings, asyncio.run(live_fleet(settings)))
        faults = asyncio.run(probe_engines(settings, plan))
        for fault in faults:
            print(f"slipstream: {fault}", file=sys.stderr)
        if faults:
            sys.exit(1)
        print(probed(plan.engines))
    for warning in start_check.warnings(settings):
        print(f"warning: {warning}", file=sys.stderr)
    local, settings = local_pools(settings), with_saved_ports(settings)
    for note in notes_of(settings):
        print(f"note: {note}", file=sys.stderr)
    for each in started if settings.models else ():
        print(f"up starts {each.engine.name}: {each.engine.folder.name}, {each}")
    for engine in plan_launches(settings, local):
        print(f"up starts {engine.name}: {engine.spec.engine}{' (not installed)' if engine.unavailable_reason else ''}")
    print("settings are valid")


def probed(engines: int) -> str:
    """The result line of a probe without a fault. engines: their number, without those that `up` starts."""
    if not engines:
        return "no engine was probed: settings and running fleet name only engines that `up` starts"
    return "1 engine matches the settings" if engines == 1 else f"{engines} engines match the settings"


@config.command()
@config_option
@data_option
def show(config_file: Path | None, data: str | None) -> None:
    """Print the effective value of every setting, from file and environment, as TOML. URLs may hold passwords."""
    from slipstream import toml

    print(toml.dump(load_settings(config_file, local__data=data)), end="")
