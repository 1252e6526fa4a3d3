"""`slipstream console admin-keys`: keys for the admin API. This is how a deployment gets its first owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from slipstream.commands.members import ROLES, administered_option
from slipstream.operated import ADMINISTERED, MAX_LISTED, AdminOperation, PathValue, listed, operated

if TYPE_CHECKING:
    from control.api.call import AdminCall
    from control.tenants.admin_keys import AdminKey, AdminKeyWithSecret


@click.group(name="admin-keys")
def admin_keys() -> None:
    """Create, list and revoke keys for the admin API."""


async def _create(call: AdminCall, options: dict[str, Any]) -> AdminKeyWithSecret:
    from control.tenants.admin_keys import NewAdminKey, create_admin_key
    from control.tenants.members import NewMember, create_member
    from slipstream.administration import converted
    from slipstream.tenants import ensure_operating_organization, organization_named

    organization, email = options["organization"], options["email"]
    member = converted({"email": email, "name": email, "role": options["role"]}, NewMember)
    if organization is None:
        organization_id = await ensure_operating_organization(call)
    else:
        organization_id = await organization_named(call.connection, organization)
    principal_id = await call.connection.fetchval(
        "SELECT id FROM gateway.principals WHERE organization_id = $1 AND lower(email) = lower($2)",
        organization_id,
        email,
    )
    if principal_id is None:
        principal_id = (await create_member(call, organization_id, member)).id
    body = converted({"principal_id": principal_id, "name": options["name"]}, NewAdminKey)
    return await create_admin_key(call, organization_id, body)


@operated(admin_keys, _create)
@administered_option
@click.option(
    "--email",
    default="owner@localhost",
    show_default=True,
    help="E-mail address of the member who gets the key. A new member is added.",
)
@click.option("--role", type=click.Choice(ROLES), default="owner", show_default=True, help="Role of a new member.")
@click.option("--name", default="command line", show_default=True, help="Name of the key in lists.")
def create(made: AdminKeyWithSecret) -> str:
    """Create an admin key and print it. It is shown only once."""
    return made.secret


LIST = AdminOperation("tenants.admin_keys.list_admin_keys", ADMINISTERED, limit=MAX_LISTED)


async def _list(call: AdminCall, options: dict[str, Any]) -> Any:
    """The admin keys; an empty list while no organization operates the deployment."""
    from slipstream.tenants import operating_organization

    if options["organization"] is None and await operating_organization(call.connection) is None:
        return []
    return await LIST(call, options)


@listed(
    admin_keys,
    _list,
    {"id": "id", "key": "display", "state": "state", "role": "role", "owner": "principal_id", "name": "name"},
    more="/organizations/{organization_id}/admin-keys",
)
@administered_option
def list_command() -> None:
    """List an organization's admin keys, without their secrets, newest first."""


@operated(admin_keys, AdminOperation("tenants.admin_keys.revoke_admin_key", PathValue("admin_key_named", ("which",))))
@click.argument("which", metavar="KEY")
def revoke(key: AdminKey) -> str:
    """Revoke the admin key WHICH (its id, its sk-slip-admin-… from the list, or its name), permanently and at once."""
    return f"revoked {key.display} ({key.name})"
