"""Edits of the fleet by commands: each is made like the admin API's and printed in lines; then the command waits until
every running gateway serves by it or reports why it cannot."""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from contracts.errors import InvalidField
from slipstream.commands.options import Deployment, deployment_options, running_settings

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.fleet.fleet_edit import EditQuery, FleetEdit
    from control.fleet.reports import GatewayReport

Service = Callable[["AdminCall", "EditQuery"], Awaitable["FleetEdit"]]
LOOK_EVERY_S = 0.1
WAIT_S = 15.0


class How(msgspec.Struct, frozen=True):
    """The options of every command that edits the fleet."""

    deployment: Deployment
    dry_run: bool
    force: bool
    probe: bool
    if_version: int | None
    wait_s: float
    as_json: bool


def edit_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of every command that edits the fleet, passed to it together as `how`."""

    @functools.wraps(function)
    def command(
        *arguments: Any,
        deployment: Deployment,
        dry_run: bool,
        force: bool,
        probe: bool,
        if_version: int | None,
        wait_s: float,
        as_json: bool,
        **options: Any,
    ) -> None:
        function(*arguments, how=How(deployment, dry_run, force, probe, if_version, wait_s, as_json), **options)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="As one JSON object."),
        click.option(
            "--wait-s",
            type=float,
            default=WAIT_S,
            show_default=True,
            help="Wait for gateways to apply the change; 0: do not wait.",
        ),
        click.option("--if-version", type=int, metavar="N", help="Refuse if the fleet is no longer at this version."),
        click.option("--force", is_flag=True, help="Apply even if a model is left without an engine, and skip checks."),
        click.option("--probe", is_flag=True, help="Probe the engines first, and change nothing if one cannot serve."),
        click.option("--dry-run", is_flag=True, help="Show the differences, and change nothing."),
    ):
        command = option(command)
    return deployment_options(command)


def edit(how: How, service: Service) -> None:
    """Make the edit and print its effect. Exit with code 1 if a gateway cannot apply it."""
    from control.fleet.fleet_edit import EditQuery
    from slipstream.administration import administer

    async def work(call: AdminCall) -> FleetEdit:
        if how.if_version is not None:
            call.if_match = f'"{how.if_version}"'
        return await service(call, EditQuery(dry_run=how.dry_run, force=how.force, probe=how.probe))

    done = administer(how.deployment, work)
    if how.as_json:
        print(msgspec.json.encode(done).decode())
    elif not done.differences:
        print(f"nothing differs; the fleet stays at version {done.version}")
    else:
        print(f"version {done.version}{' would be' if done.dry_run else ''}:")
        print("\n".join(f"  {line}" for line in done.differences))
    if done.differences and not done.dry_run and how.wait_s > 0:
        reports = asyncio.run(taken_up(how.deployment, done.version, how.wait_s))
        for line in told(reports, done.version):
            print(line, file=sys.stderr)
        if any(report.refusal for report in reports):
            sys.exit(1)


def told(reports: list[GatewayReport], version: int) -> list[str]:
    """A line for the gateways that serve by a version, that refuse it with the reason, and that have not reported."""
    if not reports:
        return ["no gateway is running; the next one serves it from its start"]
    serving = [each.instance for each in reports if each.version >= version and each.refusal is None]
    waiting = [each.instance for each in reports if each.version < version and each.refusal is None]
    return [
        *([f"served by: {', '.join(serving)}"] if serving else []),
        *([f"not yet by: {', '.join(waiting)}"] if waiting else []),
        *(
            f"{each.instance} stays at version {each.version} and tries again: {each.refusal}"
            for each in reports
            if each.refusal is not None
        ),
    ]


async def taken_up(deployment: Deployment, version: int, wait_s: float = WAIT_S) -> list[GatewayReport]:
    """The running gateways' reports, once all have reported on the version or the wait is over."""
    from control.fleet.reports import gateway_reports
    from slipstream.database import connected

    until = time.monotonic() + wait_s
    async with connected(running_settings(*deployment)) as connection:
        while True:
            reports = [each for each in await gateway_reports(connection) if not each.silent]
            settled = all(max(each.version, each.refused_version or 0) >= version for each in reports)
            if settled or time.monotonic() >= until:
                return reports
            await asyncio.sleep(LOOK_EVERY_S)


def fields_of(file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file (JSON if it ends in .json, else TOML), overridden by the options. Raises InvalidField."""
    found: dict[str, Any] = {}
    if file is not None:
        try:
            text = file.read_bytes()
            decode = msgspec.json.decode if file.suffix == ".json" else msgspec.toml.decode
            found = decode(text, type=dict[str, Any])
        except (OSError, msgspec.MsgspecError) as error:
            raise InvalidField(f"{file}: {error}", param="file") from None
    return found | {name: value for name, value in options.items() if value not in (None, ())}
