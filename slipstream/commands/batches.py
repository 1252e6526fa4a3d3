"""`slipstream batches`: batches of all tenants, for the operator."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from slipstream.operated import ORGANIZATION, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.batches.overview import OwnedBatch


@click.group()
def batches() -> None:
    """List batches of tenants, or show one.

    \b
    Examples:
      slipstream batches list
      slipstream batches show batch_0f3c…
    """


async def _list(call: AdminCall, options: dict[str, Any]) -> list[OwnedBatch]:
    from control.batches.overview import newest_batches

    organization_id = None if options["organization"] is None else await ORGANIZATION.find(call, options)
    return await newest_batches(call.connection, organization_id, options["limit"])


@listed(
    batches,
    _list,
    {
        "created (UTC)": lambda each: f"{each.created_at:%m-%d %H:%M:%S}",
        "organization": "organization",
        "project": "project",
        "status": "status",
        "done + failed": lambda each: f"{each.completed:,} + {each.failed:,} of {each.total:,}",
        "model": lambda each: each.model or "-",
        "batch": "id",
    },
    "no batch",
)
@click.option("--organization", help="Only batches of this organization (id or name).")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
def list_command() -> None:
    """List batches, unfinished ones first, without their content."""


async def _show(call: AdminCall, options: dict[str, Any]) -> dict[str, object]:
    from control.batches.overview import whole_batch

    found: dict[str, object] | None = await whole_batch(call.connection, options["batch_id"])
    if found is None:
        print(f"no batch {options['batch_id']}", file=sys.stderr)
        sys.exit(1)
    return found


@operated(batches, _show)
@click.argument("batch_id")
def show(found: dict[str, object]) -> str:
    """Print BATCH_ID as its tenant sees it, with its owner, as JSON. Exit code 1 if there is no such batch."""
    return msgspec.json.format(msgspec.json.encode(found)).decode()
