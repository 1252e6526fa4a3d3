"""`slipstream fleet`: shows pools and replicas as the router sees them, drains replicas, and lists versions."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
from google.protobuf.json_format import MessageToJson

from contracts.printable import printable
from slipstream.command_table import Group
from slipstream.commands.fleet_versions import diff, rollback, versions
from slipstream.commands.options import config_option, control_address_option, data_option, running_settings
from slipstream.hints import command
from slipstream.replicas import state, state_and_reason
from slipstream.table import table

if TYPE_CHECKING:
    from contracts.proto import control_pb2 as pb
    from router.control.client import ControlClient

HEAD = ("replica", "state", "leases", "engine", "prefill", "headroom", "speed", "hardware")
COLUMNS = 100
LEGEND = (
    "leases: requests that the replica has, of its maximum; below, the source of the limit, or why it last moved\n"
    "engine: running + waiting requests that the engine reports\n"
    "prefill: prompt tokens of its requests that are not computed yet\n"
    "headroom: KV tokens for further requests: the free ones of its last report, less the growth of its responses and\n"
    "the requests placed since; - if it reports none\n"
    "speed: prompt tokens that it computes per second, learnt from first tokens"
)


@click.group(cls=Group, invoke_without_command=True)
@config_option
@data_option
@control_address_option
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
@click.option(
    "--explain",
    is_flag=True,
    help="Also show each engine's address and the source of its limit, and explain the columns.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def fleet(
    context: click.Context,
    config_file: Path | None,
    data: str | None,
    address: str | None,
    watch: bool,
    explain: bool,
    as_json: bool,
) -> None:
    """Show every pool and replica; change models, pools and replicas.

    An open circuit breaker keeps requests from an engine that failed them; a half-open one lets a few through. Exit
    code 1: a replica is not usable.
    """
    if context.invoked_subcommand is not None:
        return
    with _control(config_file, data, address) as control:
        while True:
            seen = control.fleet()
            if watch:
                click.clear()
            if as_json:
                click.echo(MessageToJson(seen, preserving_proto_field_name=True))
            else:
                click.echo("\n".join(told(seen, explain)))
                if explain:
                    click.echo(LEGEND, err=True)
            if not watch:
                break
            time.sleep(1)
    if not all(replica.usable for pool in seen.pools for replica in pool.replicas):
        context.exit(1)


@fleet.command()
@click.argument("replica_id")
@config_option
@data_option
@control_address_option
def drain(replica_id: str, config_file: Path | None, data: str | None, address: str | None) -> None:
    """Send REPLICA_ID no new requests until `resume` or a restart of the router; running ones finish."""
    with _control(config_file, data, address, changing=True) as control:
        replica = control.drain(replica_id, True)
        click.echo(f"{replica.id} takes no new requests; {replica.leases} are still running")
        if (pool := left_without(control.fleet(), replica.id)) is not None:
            back = command(f"fleet resume {replica.id}")
            click.echo(
                f"warning: no other replica of the pool {pool} takes requests; they are refused until `{back}`",
                err=True,
            )


@fleet.command()
@click.argument("replica_id")
@config_option
@data_option
@control_address_option
def resume(replica_id: str, config_file: Path | None, data: str | None, address: str | None) -> None:
    """Send REPLICA_ID requests again. Exit code 1 if it still gets none because its weight is 0."""
    with _control(config_file, data, address, changing=True) as control:
        replica = control.drain(replica_id, False)
        click.echo(f"{replica_id} is {state(replica)}")
    if not replica.weight:
        weigh = command(f"fleet replicas weight {replica_id} 1")
        click.echo(f"its weight in the fleet is 0; `{weigh}` changes it", err=True)
        sys.exit(1)


for subcommand in (versions, diff, rollback):
    fleet.add_command(subcommand)


def left_without(seen: pb.Fleet, replica_id: str) -> str | None:
    """The replica's pool if none of its replicas gets requests; None if another one does."""
    for pool in seen.pools:
        if any(replica.id == replica_id for replica in pool.replicas):
            return None if any(replica.usable and replica.weight for replica in pool.replicas) else str(pool.name)
    return None


def told(fleet: pb.Fleet, explain: bool = False) -> Iterator[str]:
    """The fleet as lines of text, usually of up to 100 columns. explain: also each replica's address and the reason for
    its limit."""
    gateways = f"{fleet.gateways} gateway{'' if fleet.gateways == 1 else 's'}"
    yield f"fleet version {fleet.desired_state_version}, {gateways} connected"
    for pool in fleet.pools:
        yield ""
        yield f"{pool.name}: {pool.queued} waiting" + (f"; drafts {pool.speculation}" if explain else "")
        for line in table(HEAD, map(_row, pool.replicas)):
            yield f"  {line}"
        for replica in pool.replicas:
            yield from _notes(replica, explain)


def _row(replica: pb.Replica) -> tuple[str, ...]:
    return (
        replica.id,
        state_and_reason(replica)[0],
        f"{replica.leases}/{replica.max_concurrency}",
        f"{replica.running}+{replica.waiting}",
        f"{replica.prefill_tokens:,}",
        f"{replica.headroom_tokens:,}" if replica.HasField("headroom_tokens") else "-",
        f"{replica.prefill_tokens_per_s:,.0f}" if replica.prefill_tokens_per_s else "-",
        replica.hardware or "-",
    )


def _notes(replica: pb.Replica, explain: bool) -> Iterator[str]:
    """Lines below a replica's row: why it is unusable and, if `explain`, its address and the reason for its limit."""
    notes = [reason] if (reason := state_and_reason(replica)[1]) else []
    if explain:
        notes += [f"at most {replica.max_concurrency} requests ({replica.limited_by})", replica.url]
    for note in notes:
        yield from textwrap.wrap(
            printable(note), COLUMNS, initial_indent=f"    {replica.id}: ", subsequent_indent=" " * 6,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip


def _control(
    config_file: Path | None, data: str | None, address: str | None, *, changing: bool = False
) -> ControlClient:
    from router.control.client import ControlClient

    settings = running_settings(config_file, data)
    token = settings.router_token if changing else settings.reader_token
    return ControlClient(address or settings.control_address, token)
