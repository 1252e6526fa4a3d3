"""Options that several commands share, and how they become settings."""

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
    """`--config FILE`."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Settings file (TOML). Default: slipstream.toml here, if there is one.",
    )(function)


def data_option(function: Function) -> Function:
    """`--data FOLDER`."""
    return click.option("--data", metavar="FOLDER", help="Data folder. Default: .slipstream here.")(function)


class Deployment(NamedTuple):
    """Which deployment a command is for."""

    config_file: Path | None
    data: str | None


def deployment_options(function: Callable[..., None]) -> Callable[..., None]:
    """`--data` and `--config`, handed to the command together."""

    @functools.wraps(function)
    def command(*arguments: Any, config_file: Path | None, data: str | None, **given: Any) -> None:
        function(*arguments, deployment=Deployment(config_file, data), **given)

    return data_option(config_option(command))


def control_address_option(function: Function) -> Function:
    """`--address HOST:PORT` of the router's control service."""
    return click.option(
        "--address", metavar="HOST:PORT", help="Address of the router's control service. Default: router.control_port."
    )(function)


def kv_budget_option(function: Function) -> Function:
    """`--kv-budget-bytes` of embedded engines."""
    return click.option(
        "--kv-budget-bytes",
        "engine__kv__budget_bytes",
        type=int,
        metavar="BYTES",
        help="Memory of an embedded engine for keys and values. Default: engine.kv.budget_bytes.",
    )(function)


def metrics_port_option(section: str) -> Callable[[Function], Function]:
    """`--metrics-port` of a process whose settings are this section."""
    return click.option(
        "--metrics-port",
        f"{section}__metrics__port",
        type=int,
        metavar="PORT",
        help=f"Port for Prometheus metrics; 0: none. Default: {section}.metrics.port.",
    )


def load_settings(config_file: Path | None, **overrides: Any) -> Settings:
    """Settings with the command line's values on top; names use `__` for the dot, None means not given."""
    from slipstream import settings

    given = {name.replace("__", "."): value for name, value in overrides.items() if value is not None}
    return settings.load(config_file, given)


def starting_settings(config_file: Path | None, data: str | None, **overrides: Any) -> Settings:
    """Settings of a process that starts, which logs from now on as they say: their fleet is checked, and the data
    folder is made where it is absent.

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
    """The settings a deployment of `up` decided on this data folder: while it runs, and afterwards too unless a file is
    named, which then says where things are without `up`. Else what they would be."""
    from infra.local.lock import held
    from slipstream import settings

    asked = load_settings(config_file, local__data=data)
    decided = asked.data.settings_file
    followed = decided.is_file() and (config_file is None or held(asked.data.lock_file))
    return settings.load(decided, {}) if followed else asked
