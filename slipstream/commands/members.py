"""`slipstream customers members`: who may administer an organization."""

from __future__ import annotations

from collections.abc import Callable

import click

from slipstream.commands.options import Deployment, deployment_options
from slipstream.listing import json_option, show, state_of

ROLES = ("owner", "admin", "developer", "viewer", "billing")


@click.group()
def members() -> None:
    """Add, list and remove members of an organization."""


@members.command(name="list")
@deployment_options
@click.option("--organization", help="Id or name. Default: the one that operates the deployment.")
@json_option
def list_command(deployment: Deployment, organization: str | None, as_json: bool) -> None:
    """List an organization's members, newest first."""
    from control.api.call import AdminCall
    from control.api.schemas import Page
    from control.tenants.members import Member, MemberQuery, list_members
    from slipstream.administration import administer
    from slipstream.tenants import administered_organization

    async def work(call: AdminCall) -> Page[Member]:
        found = await administered_organization(call.connection, organization)
        return await list_members(call, found, MemberQuery(limit=100))

    page = administer(deployment, work)
    columns: dict[str, Callable[[Member], object]] = {
        "id": lambda each: each.id,
        "state": state_of,
        "role": lambda each: each.role.value,
        "e-mail": lambda each: each.email,
        "name": lambda each: each.name,
    }
    more = "/organizations/{organization_id}/members" if page.has_more else ""
    show(page.data, columns, as_json=as_json, more=more)


@members.command()
@deployment_options
@click.option("--organization", required=True, help="Id or name.")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True)
@click.option("--name", help="Default: the e-mail address.")
@click.argument("email")
def add(deployment: Deployment, organization: str, role: str, name: str | None, email: str) -> None:
    """Add EMAIL to an organization. `slipstream console admin-keys create` makes a key for it."""
    from control.api.call import AdminCall
    from control.tenants.members import Member, NewMember, create_member
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    body = converted({"email": email, "name": name or email, "role": role}, NewMember)

    async def work(call: AdminCall) -> Member:
        found = await organization_named(call.connection, organization)
        return await create_member(call, found, body)

    print(administer(deployment, work).id)


@members.command()
@deployment_options
@click.option("--organization", help="Of an e-mail address: id or name. Default: the one that operates the deployment.")
@click.argument("which")
def remove(deployment: Deployment, organization: str | None, which: str) -> None:
    """Remove the member WHICH (id or e-mail address) and all the member's admin keys."""
    from control.api.call import AdminCall
    from control.tenants.members import delete_member
    from slipstream.administration import administer
    from slipstream.tenants import administered_organization, member_named

    async def work(call: AdminCall) -> None:
        found = await administered_organization(call.connection, organization)
        await delete_member(call, await member_named(call.connection, found, which))

    administer(deployment, work)
    print(f"removed {which}")
