"""`slipstream router`: runs the router; `explain` and `replay` look at what it decided."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from contracts.errors import ConfigError
from slipstream.commands.options import config_option, data_option, load_settings, running_settings
from slipstream.commands.processes import log_to_stderr

DIFFERENCES_SHOWN = 10


@click.group(invoke_without_command=True)
@config_option
@data_option
@click.pass_context
def router(context: click.Context, config_file: Path | None, data: str | None) -> None:
    """Run the router, or ask it why."""
    if context.invoked_subcommand is not None:
        return
    from router.service import main

    log_to_stderr()
    settings = load_settings(config_file, local__data=data)
    main(settings.router, token=settings.token)


@router.command()
@click.argument("request_id")
@config_option
@data_option
@click.option("--address", metavar="HOST:PORT", help="Of the router. Default: the gateways' setting.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as they are.")
def explain(request_id: str, config_file: Path | None, data: str | None, address: str | None, as_json: bool) -> None:
    """Say why REQUEST_ID was placed where it was, or refused, and how that turned out."""
    from router.explain import ask, told

    settings = running_settings(config_file, data)
    records = ask(address or settings.gateway.router.address, settings.token, request_id)
    click.echo(msgspec.json.format(msgspec.json.encode(records), indent=2).decode() if as_json else told(records))


@router.command()
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@data_option
@click.option("--policy", help="Decide with this policy instead of the configured one.")
def replay(file: Path, config_file: Path | None, data: str | None, policy: str | None) -> None:
    """Put an event log (router.event_log) through the core again and compare the decisions."""
    from router import event_log

    settings = load_settings(config_file, local__data=data)
    config = settings.router if policy is None else msgspec.structs.replace(settings.router, policy=policy)
    events = differences = 0
    try:
        for step in event_log.replay(file, config):
            events += 1
            if step.logged != step.decided:
                differences += 1
                if differences <= DIFFERENCES_SHOWN:
                    click.echo(f"event {step.number} at {step.now:.3f} s: {step.logged} became {step.decided}")
    except (OSError, msgspec.MsgspecError, LookupError) as error:
        raise ConfigError(f"{file} cannot be replayed: {error}; give a file that router.event_log wrote") from None
    click.echo(f"{events:,} events, {differences:,} decided differently")
