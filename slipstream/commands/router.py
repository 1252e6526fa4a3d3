"""`slipstream router`: runs the router; `explain`, `watch` and `replay` show its decisions."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click
import msgspec

from contracts.errors import ConfigError
from slipstream.commands.options import (
    config_option,
    control_address_option,
    data_option,
    load_settings,
    metrics_port_option,
    running_settings,
    starting_settings,
)
from slipstream.descriptors import raise_descriptor_limit
from slipstream.process_end import leave

DIFFERENCES_SHOWN = 10


@click.group(invoke_without_command=True)
@config_option
@data_option
@metrics_port_option("router")
@click.pass_context
def router(context: click.Context, /, config_file: Path | None, data: str | None, **overrides: int | None) -> None:
    """Run the router, or explain its decisions."""
    if context.invoked_subcommand is not None:
        return
    from router.service import main
    from router.tokens import RouterTokens

    raise_descriptor_limit()
    settings = starting_settings(config_file, data, **overrides)
    tokens = RouterTokens(settings.router_token, settings.reader_token)
    main(settings.router, tokens, settings.observer_keys(), settings.tracing, settings.own_engines)
    leave()


@router.command()
@click.argument("request_id")
@config_option
@data_option
@control_address_option
@click.option("--json", "as_json", is_flag=True, help="Print the raw records.")
def explain(request_id: str, config_file: Path | None, data: str | None, address: str | None, as_json: bool) -> None:
    """Explain why REQUEST_ID was placed where it was, or refused, and show the result.

    Every response has the id in the header `x-request-id`; the response's own `id` (chatcmpl-…) also works. Attempts
    are counted from 0, as in the ledger. Exit code 1: the router remembers no decision about the request.
    """
    from contracts.request_id import request_id_of
    from router.control.client import ControlClient
    from router.explain import LEGEND, told

    settings = running_settings(config_file, data)
    with ControlClient(address or settings.control_address, settings.reader_token) as control:
        records = control.explain(request_id_of(request_id))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(records), indent=2).decode())
        return
    click.echo(told(records), err=not records)
    if not records:
        sys.exit(1)
    if any(record.candidates for record in records):
        click.echo(LEGEND, err=True)


@router.command()
@config_option
@data_option
@control_address_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def watch(config_file: Path | None, data: str | None, address: str | None, as_json: bool) -> None:
    """Show decisions as they are made, until Ctrl-C."""
    from router.control.client import ControlClient
    from router.explain import line

    settings = running_settings(config_file, data)
    with ControlClient(address or settings.control_address, settings.reader_token) as control:
        for record, missed in control.watch():
            if missed:
                click.echo(f"… {missed:,} not shown", err=True)
            click.echo(msgspec.json.encode(record).decode() if as_json else line(record))


@router.command()
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@data_option
@click.option("--policy", help="Use this policy instead of the configured one.")
def replay(file: Path, config_file: Path | None, data: str | None, policy: str | None) -> None:
    """Replay an event log through the core and compare the decisions.

    The router writes FILE if `router.event_log` names it. After a restart, the previous log is FILE.1. With --policy,
    the recorded events do not change, because the engines' responses under that policy are unknown.
    """
    from router import event_log

    settings = load_settings(config_file, local__data=data)
    config = settings.router if policy is None else msgspec.structs.replace(settings.router, policy=policy)
    events = differences = 0
    began_at: float | None = None
    outcomes: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    try:
        for step in event_log.replay(file, config):
            events += 1
            began_at = step.now if began_at is None else began_at
            for decisions, counted in zip((step.logged, step.decided), outcomes, strict=True):
                counted.update(outcome for one in decisions if (outcome := event_log.outcome(one)))
            if step.logged != step.decided:
                differences += 1
                if differences <= DIFFERENCES_SHOWN:
                    logged, decided = (", ".join(one) or "nothing" for one in (step.logged, step.decided))
                    click.echo(f"event {step.number}, {step.now - began_at:.3f} s: {logged} became {decided}")
    except (OSError, ValueError, LookupError) as error:
        raise ConfigError(f"{file} cannot be replayed: {error}; give a file that router.event_log wrote") from None
    if not events:
        click.echo(f"{file} holds no events yet")
        return
    if differences > DIFFERENCES_SHOWN:
        click.echo(f"… and {differences - DIFFERENCES_SHOWN:,} more")
    click.echo(f"{events:,} events, {differences:,} decided differently")
    for name in sorted(outcomes[0] | outcomes[1]):
        click.echo(f"  {name:<40} {outcomes[0][name]:>9,} then {outcomes[1][name]:>9,} now")
