"""`slipstream customers organizations`: whom the deployment serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from slipstream.commands.options import Deployment, deployment_options
from slipstream.listing import json_option, show, state_of

if TYPE_CHECKING:
    from control.tenants.organizations import Organization, OrganizationChanges


@click.group()
def organizations() -> None:
    """Make, list, change, disable and enable organizations."""


@organizations.command(name="list")
@deployment_options
@json_option
def list_command(deployment: Deployment, as_json: bool) -> None:
    """List organizations, newest first."""
    from control.tenants.organizations import OrganizationQuery, list_organizations
    from slipstream.administration import administer

    query = OrganizationQuery(limit=100)
    page = administer(deployment, lambda call: list_organizations(call, query))
    columns: dict[str, Callable[[Organization], object]] = {
        "id": lambda each: each.id,
        "state": state_of,
        "name": lambda each: each.name,
        "notes": _notes,
    }
    more = "/organizations" if page.has_more else ""
    show(page.data, columns, as_json=as_json, more=more)


def _notes(each: Organization) -> str:
    notes = ("operates the deployment" if each.operator else "", "stores prompts" if each.store_prompts else "")
    return ", ".join(filter(None, notes))


@organizations.command()
@deployment_options
@click.argument("name")
def create(deployment: Deployment, name: str) -> None:
    """Make an organization and print its id."""
    from control.tenants.organizations import NewOrganization, create_organization
    from slipstream.administration import administer, converted

    body = converted({"name": name}, NewOrganization)
    print(administer(deployment, lambda call: create_organization(call, body)).id)


@organizations.command()
@deployment_options
@click.argument("which")
@click.option(
    "--store-prompts/--no-store-prompts",
    required=True,
    help="Whether what its people ask at gaps, and are answered, and where its prompts differ from those before, is"
    " kept for its own administrators. Off deletes it.",
)
def update(deployment: Deployment, which: str, store_prompts: bool) -> None:
    """Change the organization WHICH (id or name)."""
    from control.tenants.organizations import OrganizationChanges

    after = _updated(deployment, which, OrganizationChanges(store_prompts=store_prompts))
    print(f"{after.name}: prompts are {'stored' if after.store_prompts else 'not stored'}")


@organizations.command()
@deployment_options
@click.argument("which")
def disable(deployment: Deployment, which: str) -> None:
    """Refuse all keys of the organization WHICH (id or name), everywhere within a second."""
    _switch(deployment, which, disabled=True)


@organizations.command()
@deployment_options
@click.argument("which")
def enable(deployment: Deployment, which: str) -> None:
    """Let the organization WHICH (id or name) in again."""
    _switch(deployment, which, disabled=False)


def _switch(deployment: Deployment, which: str, *, disabled: bool) -> None:
    from control.tenants.organizations import OrganizationChanges

    after = _updated(deployment, which, OrganizationChanges(disabled=disabled))
    print(f"{'disabled' if after.disabled_at else 'enabled'} {after.name}")


def _updated(deployment: Deployment, which: str, changes: OrganizationChanges) -> Organization:
    from control.api.call import AdminCall
    from control.tenants.organizations import update_organization
    from slipstream.administration import administer
    from slipstream.tenants import organization_named

    async def work(call: AdminCall) -> Organization:
        found = await organization_named(call.connection, which)
        return await update_organization(call, found, changes)

    return administer(deployment, work)
