"""`slipstream fleet versions|diff|rollback`: shows the authors of changes and the differences, and rolls back."""

from __future__ import annotations

import sys
from datetime import UTC
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options
from slipstream.fleet_edit import How, edit, edit_options, told
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.api.schemas import Page
    from control.fleet.fleet import FleetDocument, FleetStanding, FleetVersion


@click.command()
@deployment_options
@click.option(
    "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Maximum number of versions to list."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def versions(deployment: Deployment, limit: int, as_json: bool) -> None:
    """List the versions of the fleet with their authors, newest first, and the version that each gateway serves."""
    from control.api.schemas import PageQuery
    from control.fleet.fleet import get_fleet, list_fleet_versions
    from slipstream.administration import administer

    async def work(call: AdminCall) -> tuple[Page[FleetVersion], FleetStanding]:
        return await list_fleet_versions(call, PageQuery(limit=limit)), await get_fleet(call)

    page, standing = administer(deployment, work)
    if as_json:
        print(msgspec.json.encode({"versions": page.data, "gateways": standing.gateways}).decode())
        return
    rows = [
        (
            str(each.version),
            f"{each.created_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            each.action or "-",
            each.actor or "-",
        )
        for each in page.data
    ]
    print("\n".join(table(("version", "at (UTC)", "action", "by"), rows)))
    running = [each for each in standing.gateways if not each.silent]
    print("\n".join(told(running, standing.version)), file=sys.stderr)


@click.command()
@deployment_options
@click.option("--since", type=int, metavar="N", help="The version to compare with. Default: the previous version.")
@click.option("--json", "as_json", is_flag=True, help="Print the whole version as one JSON object.")
@click.argument("version", type=int, required=False)
def diff(deployment: Deployment, version: int | None, since: int | None, as_json: bool) -> None:
    """Show what VERSION changed. Default: the version in force."""
    from control.fleet.fleet import SinceQuery, get_fleet_version
    from control.fleet.fleet_edit import in_force
    from slipstream.administration import administer, converted

    query = converted({} if since is None else {"since": since}, SinceQuery)

    async def work(call: AdminCall) -> FleetDocument:
        number = (await in_force(call)).state.version if version is None else version
        return await get_fleet_version(call, str(number), query)

    found = administer(deployment, work)
    if as_json:
        print(msgspec.json.encode(found).decode())
        return
    print(f"version {found.version} ({found.action or 'settings'}{f', {found.actor}' if found.actor else ''}):")
    print("\n".join(f"  {line}" for line in found.differences) or "  nothing differs")


@click.command()
@click.argument("version", type=int)
@edit_options
def rollback(how: How, version: int) -> None:
    """Restore VERSION as a new version."""
    from control.fleet.fleet import Rollback, roll_back_fleet
    from slipstream.administration import converted

    body = converted({"version": version}, Rollback)
    edit(how, lambda call, query: roll_back_fleet(call, body, query))
