"""Members and service accounts, which have a role in an organization, and the rules for changing them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import ColumnElement, func, select

from contracts.errors import Conflict
from control.api.call import AdminCall
from control.api.resource import Bound, Resource
from control.api.schemas import Body, Deleted, Name, Page, PageQuery
from storage.roles import PrincipalKind, Role
from storage.rows import equal, is_set
from storage.tables.tenants import principals


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The common fields of members and service accounts."""

    id: UUID
    organization_id: UUID
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


HolderT = TypeVar("HolderT", bound=Holder)
END_SESSIONS = """
DELETE FROM gateway.console_sessions USING gateway.console_accounts
 WHERE account_id = console_accounts.id AND principal_id = $1
"""


class HolderQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    role: Role | None = None
    disabled: bool | None = None


class PrincipalChanges(Body, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their values."""

    name: Name | UnsetType = UNSET
    role: Role | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


@dataclass(frozen=True, kw_only=True)
class PrincipalResource(Resource[HolderT]):
    """The principals of one kind."""

    kind: PrincipalKind

    @classmethod
    def of(
        cls, kind: PrincipalKind, shown: type[HolderT], **computed: ColumnElement[Any]
    ) -> PrincipalResource[HolderT]:
        """The resource of a kind. shown: the kind's struct. computed: its fields that are not columns."""
        only = principals.c.kind == kind.value
        noun = kind.value.replace("_", " ")
        bound = Bound(f"{kind.value}s", f"{noun}s", "remove")
        return cls(noun, shown, principals, principals, computed=computed, only=only, bound=bound, kind=kind)

    async def list_of(
        self, call: AdminCall, organization_id: UUID, query: HolderQuery, narrower: ColumnElement[bool]
    ) -> Page[HolderT]:
        """An organization's principals of this kind, newest first."""
        await call.require_organization(organization_id)
        table = principals.c
        matching = (equal(table.role, query.role), is_set(table.disabled_at, query.disabled), narrower)
        return await self.page(call, query, table.organization_id == organization_id, *matching)

    async def add(self, call: AdminCall, organization_id: UUID, role: Role, body: Body) -> HolderT:
        """Create a principal. Raises PermissionDenied for a role above the caller's."""
        await call.require_organization(organization_id)
        call.require_covers(role)
        await self.require_room(call, organization_id)
        return await self.create(call, organization_id=organization_id, kind=self.kind.value, **self.values_of(body))

    async def change(self, call: AdminCall, principal_id: UUID, changes: PrincipalChanges) -> HolderT:
        """Change a principal. Raises PermissionDenied, or Conflict if the organization would lose its last owner."""
        before = await self.find(call, principal_id, for_update=True)
        role = before.role if changes.role is UNSET else changes.role
        disabled = before.disabled_at is not None if changes.disabled is UNSET else changes.disabled
        call.require_covers(before.role, role)
        if disabled or role is not Role.OWNER:
            await self._require_other_owner(call, before)
        if disabled:  # a member that is enabled later must sign in again
            await call.connection.execute(END_SESSIONS, principal_id)
        return await self.update(call, before, self.values_of(changes))

    async def remove(self, call: AdminCall, principal_id: UUID) -> Deleted:
        """Remove a principal and its admin keys. Raises like `change`."""
        before = await self.find(call, principal_id, for_update=True)
        call.require_covers(before.role)
        await self._require_other_owner(call, before)
        return await self.delete(call, before)

    async def _require_other_owner(self, call: AdminCall, leaving: HolderT) -> None:
        """Raises Conflict if `leaving` is the last owner that is not disabled."""
        if self.kind is not PrincipalKind.MEMBER or leaving.role is not Role.OWNER or leaving.disabled_at is not None:
            return
        # The lock serializes two owners who remove each other at once: the second removal finds the last owner.
        await call.lock_organization(leaving.organization_id)
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
            raise Conflict("This is the organization's last owner; make another member an owner first.")
