"""`slipstream customers members`: the members who may administer an organization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slipstream.listing import state_of
from slipstream.operated import ADMINISTERED, MAX_LISTED, ORGANIZATION, AdminOperation, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.api.schemas import Deleted
    from control.tenants.members import Member

ROLES = ("owner", "admin", "developer", "viewer", "billing")
administered_option = click.option(
    "--organization", help="Organization: id or name. Default: the operating organization."
)


@click.group()
def members() -> None:
    """Add, list and remove members of an organization."""


@listed(
    members,
    AdminOperation("tenants.members.list_members", ADMINISTERED, limit=MAX_LISTED),
    {"id": "id", "state": state_of, "role": "role", "e-mail": "email", "name": "name"},
)
@administered_option
def list_command() -> None:
    """List an organization's members, newest first."""


async def _add(call: AdminCall, options: dict[str, Any]) -> Any:
    options["name"] = options["name"] or options["email"]
    return await AdminOperation("tenants.members.create_member", ORGANIZATION)(call, options)


@operated(members, _add)
@click.option("--organization", required=True, help="Organization: id or name.")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True)
@click.option("--name", help="Name of the member. Default: the e-mail address.")
@click.argument("email")
def add(made: Member) -> object:
    """Add EMAIL to an organization. `slipstream console admin-keys create` makes a key for it."""
    return made.id


async def _remove(call: AdminCall, options: dict[str, Any]) -> Deleted:
    from control.tenants.members import delete_member
    from slipstream.tenants import member_named

    found = await ADMINISTERED.find(call, options)
    return await delete_member(call, await member_named(call.connection, found, options["which"]))


@operated(members, _remove)
@click.option(
    "--organization",
    help="Organization in which an e-mail address is looked up: id or name. Default: the operating organization.",
)
@click.argument("which")
def remove(_: Deleted) -> str:
    """Remove the member WHICH (id or e-mail address) and all of the member's admin keys."""
    return f"removed {click.get_current_context().params['which']}"
