"""Members and service accounts: who has a role in an organization and acts by admin keys, and who may give it."""

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
    """What both have."""

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
    """What to change; what is left out stays."""

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
        """shown: the struct of this kind. computed: its fields that are no columns."""
        only = principals.c.kind == kind.value
        noun = kind.value.replace("_", " ")
        bound = Bound(f"{kind.value}s", f"{noun}s", "remove")
        return cls(noun, shown, principals, principals, computed=computed, only=only, bound=bound, kind=kind)

    async def list_of(
        self, call: AdminCall, organization_id: UUID, query: HolderQuery, narrower: ColumnElement[bool]
    ) -> Page[HolderT]:
        """An organization's, newest first."""
        await call.require_organization(organization_id)
        table = principals.c
        matching = (equal(table.role, query.role), is_set(table.disabled_at, query.disabled), narrower)
        return await self.page(call, query, table.organization_id == organization_id, *matching)

    async def add(self, call: AdminCall, organization_id: UUID, role: Role, body: Body) -> HolderT:
        """The new one. Raises PermissionDenied for a role that is more than the caller's."""
        await call.require_organization(organization_id)
        call.require_covers(role)
        await self.require_room(call, organization_id)
        return await self.create(call, organization_id=organization_id, kind=self.kind.value, **self.values_of(body))

    async def change(self, call: AdminCall, principal_id: UUID, changes: PrincipalChanges) -> HolderT:
        """Raises PermissionDenied, or Conflict when the organization would be left without an owner."""
        before = await self.find(call, principal_id, for_update=True)
        role = before.role if changes.role is UNSET else changes.role
        disabled = before.disabled_at is not None if changes.disabled is UNSET else changes.disabled
        call.require_covers(before.role, role)
        if disabled or role is not Role.OWNER:
            await self._require_other_owner(call, before)
        if disabled:  # who is let in again later signs in again
            await call.connection.execute(END_SESSIONS, principal_id)
        return await self.update(call, before, self.values_of(changes))

    async def remove(self, call: AdminCall, principal_id: UUID) -> Deleted:
        """Remove it, with its admin keys. Raises like `change`."""
        before = await self.find(call, principal_id, for_update=True)
        call.require_covers(before.role)
        await self._require_other_owner(call, before)
        return await self.delete(call, before)

    async def _require_other_owner(self, call: AdminCall, leaving: HolderT) -> None:
        """Raises Conflict when `leaving` is the last member who is an owner and may act."""
        if self.kind is not PrincipalKind.MEMBER or leaving.role is not Role.OWNER or leaving.disabled_at is not None:
            return
        # Two owners who remove each other at the same moment meet at this lock: the second one then finds itself last.
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
            raise Conflict("This is the organization's last owner; make another one first.")
