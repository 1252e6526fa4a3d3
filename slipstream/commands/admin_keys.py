"""`slipstream console admin-keys`: keys for the admin API. This is how a deployment gets its first owner."""

from __future__ import annotations

from collections.abc import Callable

import click

from slipstream.commands.members import ROLES
from slipstream.commands.options import Deployment, deployment_options
from slipstream.listing import json_option, show


@click.group(name="admin-keys")
def admin_keys() -> None:
    """Make, list and revoke keys for the admin API."""


@admin_keys.command()
@deployment_options
@click.option("--organization", help="Id or name. Default: the one that operates the deployment.")
@click.option("--email", default="owner@localhost", show_default=True, help="Whose key; added as a member when new.")
@click.option("--role", type=click.Choice(ROLES), default="owner", show_default=True, help="Of a new member.")
@click.option("--name", default="command line", show_default=True, help="What lists show.")
def create(deployment: Deployment, organization: str | None, email: str, role: str, name: str) -> None:
    """Make an admin key and print it: the only time it is shown."""
    from control.api.call import AdminCall
    from control.tenants.admin_keys import AdminKeyWithSecret, NewAdminKey, create_admin_key
    from control.tenants.members import NewMember, create_member
    from slipstream.administration import administer, converted
    from slipstream.tenants import ensure_operating_organization, organization_named

    member = converted({"email": email, "name": email, "role": role}, NewMember)

    async def work(call: AdminCall) -> AdminKeyWithSecret:
        connection = call.connection
        if organization is None:
            organization_id = await ensure_operating_organization(call)
        else:
            organization_id = await organization_named(connection, organization)
        principal_id = await connection.fetchval(
            "SELECT id FROM gateway.principals WHERE organization_id = $1 AND lower(email) = lower($2)",
            organization_id,
            email,
        )
        if principal_id is None:
            principal_id = (await create_member(call, organization_id, member)).id
        body = converted({"principal_id": principal_id, "name": name}, NewAdminKey)
        return await create_admin_key(call, organization_id, body)

    print(administer(deployment, work).secret)


@admin_keys.command(name="list")
@deployment_options
@click.option("--organization", help="Id or name. Default: the one that operates the deployment.")
@json_option
def list_command(deployment: Deployment, organization: str | None, as_json: bool) -> None:
    """List an organization's admin keys, newest first; never their secrets."""
    from control.api.call import AdminCall
    from control.api.schemas import Page
    from control.tenants.admin_keys import AdminKey, AdminKeyQuery, list_admin_keys
    from slipstream.administration import administer
    from slipstream.tenants import operating_organization, organization_named

    async def work(call: AdminCall) -> list[AdminKey]:
        if organization is None:
            organization_id = await operating_organization(call.connection)
        else:
            organization_id = await organization_named(call.connection, organization)
        if organization_id is None:
            return []
        page: Page[AdminKey] = await list_admin_keys(call, organization_id, AdminKeyQuery(limit=100))
        return page.data

    columns: dict[str, Callable[[AdminKey], object]] = {
        "id": lambda each: each.id,
        "key": lambda each: each.display,
        "state": lambda each: each.state.value,
        "role": lambda each: each.role.value,
        "owner": lambda each: each.principal_id,
        "name": lambda each: each.name,
    }
    show(administer(deployment, work), columns, as_json=as_json)


@admin_keys.command()
@deployment_options
@click.argument("which", metavar="KEY")
def revoke(deployment: Deployment, which: str) -> None:
    """Revoke the admin key WHICH (its id, its sk-slip-admin-… as in the list, or its name), for good and at once."""
    from control.api.call import AdminCall
    from control.tenants.admin_keys import AdminKey, revoke_admin_key
    from slipstream.administration import administer
    from slipstream.tenants import admin_key_named

    async def work(call: AdminCall) -> AdminKey:
        return await revoke_admin_key(call, await admin_key_named(call.connection, which))

    key = administer(deployment, work)
    print(f"revoked {key.display} ({key.name})")
