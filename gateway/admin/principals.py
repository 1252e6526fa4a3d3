"""What members and service accounts have in common: a role in an organization, and the rules about who may give it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from msgspec import UNSET, UnsetType

from contracts.errors import Conflict
from gateway.admin.bodies import Body, Name
from gateway.admin.call import AdminCall, not_found
from gateway.tenants.roles import PrincipalKind, Role

COLUMNS = "principals.id, organization_id, email, principals.name, role, principals.created_at, principals.disabled_at"
SELECT = f"SELECT {COLUMNS} FROM gateway.principals"


async def find_principal(
    call: AdminCall, principal_id: UUID, kind: PrincipalKind, *, for_update: bool = False
) -> dict[str, Any]:
    """The row. Raises NotFound, for another organization's principal too."""
    row = await call.connection.fetchrow(
        f"{SELECT} WHERE id = $1 AND kind = $2 AND ($3::uuid IS NULL OR organization_id = $3)"
        f" {'FOR UPDATE' if for_update else ''}",
        principal_id,
        kind.value,
        call.scope,
    )
    if row is None:
        raise not_found(kind.value.replace("_", " "), principal_id)
    return dict(row)


async def insert_principal(
    call: AdminCall, organization_id: UUID, kind: PrincipalKind, email: str | None, name: str, role: Role
) -> dict[str, Any]:
    """The new row. Raises PermissionDenied for a role that is more than the caller's."""
    await call.require_organization(organization_id)
    call.require_covers(role)
    return dict(
        await call.connection.fetchrow(
            "INSERT INTO gateway.principals (organization_id, kind, email, name, role) VALUES ($1, $2, $3, $4, $5)"
            f" RETURNING {COLUMNS}",
            organization_id,
            kind.value,
            email,
            name,
            role.value,
        )
    )


class PrincipalChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays."""

    name: Name | UnsetType = UNSET
    role: Role | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


async def change_principal(call: AdminCall, before: dict[str, Any], changes: PrincipalChanges) -> dict[str, Any]:
    """The changed row. Raises PermissionDenied, or Conflict when the organization would be left without an owner."""
    name = before["name"] if changes.name is UNSET else changes.name
    role = Role(before["role"]) if changes.role is UNSET else changes.role
    disabled = before["disabled_at"] is not None if changes.disabled is UNSET else changes.disabled
    call.require_covers(Role(before["role"]), role)
    if disabled or role is not Role.OWNER:
        await require_other_owner(call, before)
    return dict(
        await call.connection.fetchrow(
            "UPDATE gateway.principals SET name = $2, role = $3,"
            f" disabled_at = CASE WHEN $4 THEN coalesce(disabled_at, now()) END WHERE id = $1 RETURNING {COLUMNS}",
            before["id"],
            name,
            role.value,
            disabled,
        )
    )


async def delete_principal(call: AdminCall, before: dict[str, Any]) -> None:
    """Remove it, with its admin keys. Raises like `change_principal`."""
    call.require_covers(Role(before["role"]))
    await require_other_owner(call, before)
    await call.connection.execute("DELETE FROM gateway.principals WHERE id = $1", before["id"])


async def require_other_owner(call: AdminCall, leaving: dict[str, Any]) -> None:
    """Raises Conflict when `leaving` is the last member who is an owner and may act."""
    if leaving["role"] != Role.OWNER or leaving["email"] is None or leaving["disabled_at"] is not None:
        return
    # Two owners who remove each other at the same moment meet at this lock: the second one then finds itself last.
    await call.connection.execute(
        "SELECT 1 FROM gateway.organizations WHERE id = $1 FOR NO KEY UPDATE", leaving["organization_id"]
    )
    others = await call.connection.fetchval(
        "SELECT count(*) FROM gateway.principals WHERE organization_id = $1 AND id <> $2"
        " AND kind = 'member' AND role = 'owner' AND disabled_at IS NULL",
        leaving["organization_id"],
        leaving["id"],
    )
    if not others:
        raise Conflict("This is the organization's last owner; make another one first.")
