"""`slipstream batches`: batches of all tenants, for the operator."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from slipstream.commands.options import Deployment, deployment_options
from slipstream.table import table

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.batches.overview import OwnedBatch


@click.group()
def batches() -> None:
    """List batches of tenants, and look at single ones.

    \b
    Examples:
      slipstream batches list
      slipstream batches show batch_0f3c…
    """


@batches.command(name="list")
@deployment_options
@click.option("--organization", help="Only this one's: id or name.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def list_command(deployment: Deployment, organization: str | None, limit: int, as_json: bool) -> None:
    """List batches, those that have not ended first; never what is in them."""
    from control.batches.overview import newest_batches
    from slipstream.administration import administer
    from slipstream.tenants import organization_named

    async def work(call: AdminCall) -> list[OwnedBatch]:
        of = None if organization is None else await organization_named(call.connection, organization)
        return await newest_batches(call.connection, of, limit)

    found = administer(deployment, work)
    if as_json:
        for each in found:
            print(msgspec.json.encode(each).decode())
        return
    rows = [
        (
            f"{each.created_at:%m-%d %H:%M:%S}",
            each.organization,
            each.project,
            each.status,
            f"{each.completed:,} + {each.failed:,} of {each.total:,}",
            each.model or "-",
            each.id,
        )
        for each in found
    ]
    head = ("created (UTC)", "organization", "project", "status", "done + failed", "model", "batch")
    print("\n".join(table(head, rows)) if rows else "no batch")


@batches.command()
@deployment_options
@click.argument("batch_id")
def show(deployment: Deployment, batch_id: str) -> None:
    """Show BATCH_ID as its tenant sees it, with its owner, as one JSON object. Exit code 1 when it is not known."""
    from control.batches.overview import whole_batch
    from slipstream.administration import administer

    async def work(call: AdminCall) -> dict[str, object] | None:
        return await whole_batch(call.connection, batch_id)

    found = administer(deployment, work)
    if found is None:
        print(f"no batch {batch_id}", file=sys.stderr)
        sys.exit(1)
    print(msgspec.json.format(msgspec.json.encode(found)).decode())
