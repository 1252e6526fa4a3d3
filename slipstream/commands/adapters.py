"""`slipstream customers adapters`: LoRA adapters of organizations and projects. Gateways follow within a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slipstream.commands.projects import none_in, organization_option
from slipstream.operated import MAX_LISTED, ORGANIZATION, AdminOperation, PathValue, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.api.schemas import Deleted
    from control.tenants.adapters import Adapter


@click.group()
def adapters() -> None:
    """List, add and remove LoRA adapters, which clients name as MODEL:ADAPTER.

    \b
    Examples:
      slipstream customers adapters add llama-3.1-8b support /srv/adapters/acme-support --organization acme
      slipstream customers adapters list --organization acme
      slipstream customers adapters remove llama-3.1-8b:support --organization acme
    """


@listed(
    adapters,
    AdminOperation("tenants.adapters.list_adapters", ORGANIZATION, limit=MAX_LISTED),
    {
        "id": "id",
        "model": lambda each: f"{each.model}:{each.name}",
        "project": lambda each: each.project_id or "all",
        "path": "path",
    },
    none_in,
)
@organization_option
def list_command() -> None:
    """List an organization's adapters, newest first."""


async def _add(call: AdminCall, options: dict[str, Any]) -> Any:
    from slipstream.tenants import project_named

    project = options.pop("project")
    if project is not None:
        options["project_id"] = await project_named(call.connection, options["organization"], project)
    return await AdminOperation("tenants.adapters.create_adapter", ORGANIZATION)(call, options)


@operated(adapters, _add)
@organization_option
@click.option(
    "--project",
    help="The only project (id or name) that may use the adapter. Default: every project of the organization.",
)
@click.argument("model")
@click.argument("name")
@click.argument("path")
def add(made: Adapter) -> object:
    """Add the adapter in the folder PATH to MODEL under NAME, and print its id. PATH must be valid on the engines'
    machines."""
    return made.id


@operated(
    adapters, AdminOperation("tenants.adapters.delete_adapter", PathValue("adapter_named", ("organization", "which")))
)
@organization_option
@click.argument("which")
def remove(removed: Deleted) -> str:
    """Remove the adapter WHICH (id or MODEL:NAME). Further requests for it are refused."""
    return f"{removed.id}: removed"
