"""`slipstream customers organizations`: the organizations that the deployment serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from slipstream.listing import state_of
from slipstream.operated import MAX_LISTED, AdminOperation, PathValue, listed, operated

if TYPE_CHECKING:
    from control.tenants.organizations import Organization

UPDATE, WHICH = "tenants.organizations.update_organization", PathValue("organization_named", ("which",))


@click.group()
def organizations() -> None:
    """Create, list, change, disable and enable organizations."""


def _notes(each: Organization) -> str:
    notes = ("operates the deployment" if each.operator else "", "stores prompts" if each.store_prompts else "")
    return ", ".join(filter(None, notes))


@listed(
    organizations,
    AdminOperation("tenants.organizations.list_organizations", limit=MAX_LISTED),
    {"id": "id", "state": state_of, "name": "name", "notes": _notes},
)
def list_command() -> None:
    """List organizations, newest first."""


@operated(organizations, AdminOperation("tenants.organizations.create_organization"))
@click.argument("name")
def create(made: Organization) -> object:
    """Create an organization and print its id."""
    return made.id


@operated(organizations, AdminOperation(UPDATE, WHICH))
@click.argument("which")
@click.option(
    "--store-prompts/--no-store-prompts",
    required=True,
    help="Store the texts at gaps, their completions, and the places where prompts differ from earlier ones, for the "
    "organization's own administrators. --no-store-prompts deletes what is stored.",
)
def update(after: Organization) -> str:
    """Change the organization WHICH (id or name)."""
    return f"{after.name}: prompts are {'stored' if after.store_prompts else 'not stored'}"


@operated(organizations, AdminOperation(UPDATE, WHICH, disabled=True))
@click.argument("which")
def disable(after: Organization) -> str:
    """Refuse all keys of the organization WHICH (id or name). All gateways follow within a second."""
    return f"disabled {after.name}"


@operated(organizations, AdminOperation(UPDATE, WHICH, disabled=False))
@click.argument("which")
def enable(after: Organization) -> str:
    """Accept the keys of the organization WHICH (id or name) again."""
    return f"enabled {after.name}"
