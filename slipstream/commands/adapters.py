"""`slipstream customers adapters`: LoRA adapters of organizations and projects. Gateways follow within a second."""

from __future__ import annotations

from collections.abc import Callable

import click

from slipstream.commands.options import Deployment, deployment_options
from slipstream.commands.projects import none_in, organization_option
from slipstream.listing import json_option, show


@click.group()
def adapters() -> None:
    """List, add and remove LoRA adapters, which clients name as MODEL:ADAPTER.

    \b
    Examples:
      slipstream customers adapters add llama-3.1-8b support /srv/adapters/acme-support --organization acme
      slipstream customers adapters list --organization acme
      slipstream customers adapters remove llama-3.1-8b:support --organization acme
    """


@adapters.command(name="list")
@deployment_options
@organization_option
@json_option
def list_command(deployment: Deployment, organization: str, as_json: bool) -> None:
    """List an organization's adapters, newest first."""
    from control.api.call import AdminCall
    from control.api.schemas import Page
    from control.tenants.adapters import Adapter, AdapterQuery, list_adapters
    from slipstream.administration import administer
    from slipstream.tenants import organization_named

    async def work(call: AdminCall) -> Page[Adapter]:
        found = await organization_named(call.connection, organization)
        return await list_adapters(call, found, AdapterQuery(limit=100))

    page = administer(deployment, work)
    columns: dict[str, Callable[[Adapter], object]] = {
        "id": lambda each: each.id,
        "model": lambda each: f"{each.model}:{each.name}",
        "project": lambda each: each.project_id or "all",
        "path": lambda each: each.path,
    }
    more = "/organizations/{organization_id}/adapters" if page.has_more else ""
    show(page.data, columns, as_json=as_json, empty=none_in(organization), more=more)


@adapters.command()
@deployment_options
@organization_option
@click.option("--project", help="The one project that may use it: id or name. Default: all of the organization's.")
@click.argument("model")
@click.argument("name")
@click.argument("path")
def add(deployment: Deployment, organization: str, project: str | None, model: str, name: str, path: str) -> None:
    """Add the adapter in the folder PATH, as the engines reach it, to MODEL under NAME, and print its id."""
    from control.api.call import AdminCall
    from control.tenants.adapters import Adapter, NewAdapter, create_adapter
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named, project_named

    async def work(call: AdminCall) -> Adapter:
        found = await organization_named(call.connection, organization)
        project_id = None if project is None else await project_named(call.connection, organization, project)
        body = converted({"model": model, "name": name, "path": path, "project_id": project_id}, NewAdapter)
        return await create_adapter(call, found, body)

    print(administer(deployment, work).id)


@adapters.command()
@deployment_options
@organization_option
@click.argument("which")
def remove(deployment: Deployment, organization: str, which: str) -> None:
    """Remove the adapter WHICH, an id or MODEL:NAME: requests for it are refused from then on."""
    from control.api.call import AdminCall
    from control.api.schemas import Deleted
    from control.tenants.adapters import delete_adapter
    from slipstream.administration import administer
    from slipstream.tenants import adapter_named

    async def work(call: AdminCall) -> Deleted:
        return await delete_adapter(call, await adapter_named(call.connection, organization, which))

    print(f"{administer(deployment, work).id}: removed")
