"""Members and service accounts: who has a role in an organization and acts by admin keys, and who may give it."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import ColumnElement, delete, func, insert, select, update

from contracts.errors import Conflict
from gateway.admin.bodies import Body, Deleted, Name, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.pages import page_of
from gateway.admin.rows import columns_of, equal, is_set, set_if
from gateway.db.tables import organizations
from gateway.tenants.roles import PrincipalKind, Role
from gateway.tenants.tables import principals


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What both have; each is a subclass that says which kind of row it is."""

    kind: ClassVar[PrincipalKind]

    id: UUID
    organization_id: UUID
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None

    def audit(self, call: AdminCall, action: str, **states: Holder) -> None:
        """Note a change of it. states: `before`, `after`."""
        call.audit(f"{self.kind.value}.{action}", self.id, organization_id=self.organization_id, **states)


HolderT = TypeVar("HolderT", bound=Holder)


class HolderQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    role: Role | None = None
    disabled: bool | None = None


class PrincipalChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays."""

    name: Name | UnsetType = UNSET
    role: Role | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


async def list_principals(
    call: AdminCall, shown: type[HolderT], organization_id: UUID, query: HolderQuery, *narrower: ColumnElement[bool]
) -> Page[HolderT]:
    """An organization's, newest first."""
    await call.require_organization(organization_id)
    table = principals.c
    statement = select(*columns_of(shown, principals)).where(
        table.organization_id == organization_id,
        table.kind == shown.kind.value,
        equal(table.role, query.role),
        is_set(table.disabled_at, query.disabled),
        *narrower,
    )
    return await page_of(call.connection, shown, statement, query, table.created_at, table.id)


async def find_principal(
    call: AdminCall, shown: type[HolderT], principal_id: UUID, *, for_update: bool = False
) -> HolderT:
    """Raises NotFound, for another organization's principal too."""
    table = principals.c
    statement = select(*columns_of(shown, principals)).where(
        table.id == principal_id, table.kind == shown.kind.value, call.sees(table.organization_id)
    )
    statement = statement.with_for_update() if for_update else statement
    return await call.find(shown, statement, shown.kind.value.replace("_", " "), principal_id)


async def create_principal(
    call: AdminCall, shown: type[HolderT], organization_id: UUID, role: Role, **values: object
) -> HolderT:
    """The new one. Raises PermissionDenied for a role that is more than the caller's."""
    await call.require_organization(organization_id)
    call.require_covers(role)
    new = {"organization_id": organization_id, "kind": shown.kind.value, "role": role.value, **values}
    made = await call.one(shown, insert(principals).values(**new).returning(*columns_of(shown, principals)))
    made.audit(call, "create", after=made)
    return made


async def update_principal(
    call: AdminCall, shown: type[HolderT], principal_id: UUID, changes: PrincipalChanges
) -> HolderT:
    """The changed one. Raises PermissionDenied, or Conflict when the organization would be left without an owner."""
    before = await find_principal(call, shown, principal_id, for_update=True)
    role = before.role if changes.role is UNSET else changes.role
    disabled = before.disabled_at is not None if changes.disabled is UNSET else changes.disabled
    call.require_covers(before.role, role)
    if disabled or role is not Role.OWNER:
        await _require_other_owner(call, before)
    after = await call.one(
        shown,
        update(principals)
        .where(principals.c.id == principal_id)
        .values(
            name=before.name if changes.name is UNSET else changes.name,
            role=role.value,
            disabled_at=set_if(disabled, principals.c.disabled_at),
        )
        .returning(*columns_of(shown, principals)),
    )
    after.audit(call, "update", before=before, after=after)
    return after


async def delete_principal(call: AdminCall, shown: type[HolderT], principal_id: UUID) -> Deleted:
    """Remove it, with its admin keys. Raises like `update_principal`."""
    before = await find_principal(call, shown, principal_id, for_update=True)
    call.require_covers(before.role)
    await _require_other_owner(call, before)
    await call.value(delete(principals).where(principals.c.id == principal_id))
    before.audit(call, "delete", before=before)
    return Deleted(id=principal_id)


async def _require_other_owner(call: AdminCall, leaving: Holder) -> None:
    """Raises Conflict when `leaving` is the last member who is an owner and may act."""
    if leaving.role is not Role.OWNER or leaving.kind is not PrincipalKind.MEMBER or leaving.disabled_at is not None:
        return
    # Two owners who remove each other at the same moment meet at this lock: the second one then finds itself last.
    organization = select(organizations.c.id).where(organizations.c.id == leaving.organization_id)
    await call.value(organization.with_for_update(key_share=True))
    table = principals.c
    others = await call.value(
        select(func.count()).where(
            table.organization_id == leaving.organization_id,
            table.id != leaving.id,
            table.kind == PrincipalKind.MEMBER.value,
            table.role == Role.OWNER.value,
            table.disabled_at.is_(None),
        )
    )
    if not others:
        raise Conflict("This is the organization's last owner; make another one first.")
