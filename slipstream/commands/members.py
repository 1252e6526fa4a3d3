"""`slipstream members`: who may administer an organization."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from slipstream.commands.options import config_option, data_option
from slipstream.commands.projects import organization_option

ROLES = ("owner", "admin", "developer", "viewer", "billing")


@click.group()
def members() -> None:
    """Add, list and remove members of an organization."""


@members.command(name="list")
@data_option
@config_option
@organization_option
def list_command(config_file: Path | None, data: str | None, organization: str) -> None:
    """List an organization's members, newest first."""
    from gateway.admin.bodies import Page
    from gateway.admin.call import AdminCall
    from gateway.admin.resources.members import Member, MemberQuery, list_members
    from slipstream.administration import administer
    from slipstream.tenants import organization_named

    async def work(call: AdminCall) -> Page[Member]:
        found = await organization_named(call.connection, organization)
        page: Page[Member] = await list_members(call, found, MemberQuery(limit=100))
        return page

    page = administer(config_file, data, work)
    print(f"{'id':<38}{'state':<10}{'role':<11}{'e-mail':<32}name")
    for each in page.data:
        state = "disabled" if each.disabled_at else "active"
        print(f"{each.id!s:<38}{state:<10}{each.role.value:<11}{each.email:<32}{each.name}")
    if page.has_more:
        print("… and more: GET /admin/v1/organizations/{organization_id}/members")


@members.command()
@data_option
@config_option
@organization_option
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True)
@click.option("--name", help="Default: the e-mail address.")
@click.argument("email")
def add(config_file: Path | None, data: str | None, organization: str, role: str, name: str | None, email: str) -> None:
    """Add EMAIL to an organization. `slipstream admin-keys create` makes a key for it."""
    from gateway.admin.call import AdminCall
    from gateway.admin.resources.members import Member, NewMember, create_member
    from slipstream.administration import administer, converted
    from slipstream.tenants import organization_named

    body = converted({"email": email, "name": name or email, "role": role}, NewMember)

    async def work(call: AdminCall) -> Member:
        found = await organization_named(call.connection, organization)
        member: Member = await create_member(call, found, body)
        return member

    print(administer(config_file, data, work).id)


@members.command()
@data_option
@config_option
@click.argument("member_id", type=click.UUID)
def remove(config_file: Path | None, data: str | None, member_id: UUID) -> None:
    """Remove a member and all the member's admin keys."""
    from gateway.admin.resources.members import delete_member
    from slipstream.administration import administer

    print(f"removed {administer(config_file, data, lambda call: delete_member(call, member_id)).id}")
