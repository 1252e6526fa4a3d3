"""Options that several commands share, and the settings that they select."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from slipstream.settings import Settings

Function = TypeVar("Function", bound=Callable[..., Any])


def config_option(function: Function) -> Function:
    """Add `--config FILE`."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Settings file (TOML). Default: slipstream.toml in the working directory, if it exists.",
    )(function)


def data_option(function: Function) -> Function:
    """Add `--data FOLDER`."""
    return click.option("--data", metavar="FOLDER", help="Data folder. Default: .slipstream in the working directory.")(
        function
    )


class Deployment(NamedTuple):
    """The deployment that a command works on."""

    config_file: Path | None
    data: str | None


def deployment_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--data` and `--config`, passed to the command as one `deployment`."""

    @functools.wraps(function)
    def command(*arguments: Any, config_file: Path | None, data: str | None, **options: Any) -> None:
        function(*arguments, deployment=Deployment(config_file, data), **options)

    return data_option(config_option(command))


def control_address_option(function: Function) -> Function:
    """Add `--address HOST:PORT` of the router's control service."""
    return click.option(
        "--address", metavar="HOST:PORT", help="Address of the router's control service. Default: router.control_port."
    )(function)


def kv_budget_option(function: Function) -> Function:
    """Add `--kv-budget-bytes` of embedded engines."""
    return click.option(
        "--kv-budget-bytes",
        "engine__kv__budget_bytes",
        type=int,
        metavar="BYTES",
        help="Memory of an embedded engine for keys and values. Default: engine.kv.budget_bytes.",
    )(function)


def metrics_port_option(section: str) -> Callable[[Function], Function]:
    """Add `--metrics-port` of the process with this section of the settings."""
    return click.option(
        "--metrics-port",
        f"{section}__metrics__port",
        type=int,
        metavar="PORT",
        help=f"Port for Prometheus metrics; 0 turns them off. Default: {section}.metrics.port.",
    )


def load_settings(config_file: Path | None, **overrides: Any) -> Settings:
    """Settings with the command line's values on top. Names use `__` for the dot; a value of None is ignored."""
    from slipstream import settings

    values = {name.replace("__", "."): value for name, value in overrides.items() if value is not None}
    return settings.load(config_file, values)


def starting_settings(config_file: Path | None, data: str | None, **overrides: Any) -> Settings:
    """Settings of a process that starts. Applies their logging, checks their fleet and makes a missing data folder.

    Raises ConfigError.
    """
    from slipstream import fleet_check
    from telemetry.log import starting_log

    with starting_log() as log:
        settings = load_settings(config_file, local__data=data, **overrides)
        log.config = settings.logging
        fleet_check.check_fleet(settings)
        settings.data.make()
    return settings


def running_settings(config_file: Path | None, data: str | None) -> Settings:
    """The settings that `up` wrote into this data folder: while it runs, and afterwards unless `config_file` is given,
    which then describes a deployment without `up`. Otherwise the settings of the file and the environment."""
    from infra.local.lock import held
    from slipstream import settings

    configured = load_settings(config_file, local__data=data)
    written = configured.data.settings_file
    in_use = written.is_file() and (config_file is None or held(configured.data.lock_file))
    return settings.load(written, {}) if in_use else configured
