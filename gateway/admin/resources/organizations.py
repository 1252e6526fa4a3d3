"""Organizations: whom the deployment serves. Their ids are on every bill, so they are disabled and never deleted."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import Select, insert, select, update

from contracts.errors import Conflict
from gateway.admin.bodies import Body, Name, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.pages import page_of
from gateway.admin.rows import columns_of, equal, is_set, set_if
from gateway.db.tables import organizations


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization. operator: its members run the deployment. disabled_at: since when its keys are refused."""

    id: UUID
    name: str
    operator: bool
    created_at: datetime
    disabled_at: datetime | None


class NewOrganization(Body, frozen=True, kw_only=True):
    """name: as people call it; others may have the same."""

    name: Name


class OrganizationChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays."""

    name: Name | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


class OrganizationQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None
    disabled: bool | None = None


COLUMNS = columns_of(Organization, organizations)


async def find_organization(call: AdminCall, organization_id: UUID, *, for_update: bool = False) -> Organization:
    """Raises NotFound, for another organization's principal too."""
    statement = _visible(call).where(organizations.c.id == organization_id)
    statement = statement.with_for_update() if for_update else statement
    return await call.find(Organization, statement, "organization", organization_id)


async def add_organization(call: AdminCall, name: str, *, operator: bool = False) -> Organization:
    """The new one. operator: its members run the deployment; there is one such organization at most."""
    statement = insert(organizations).values(name=name, operator=operator).returning(*COLUMNS)
    organization = await call.one(Organization, statement)
    call.audit("organization.create", organization.id, organization_id=organization.id, after=organization)
    return organization


async def list_organizations(call: AdminCall, query: OrganizationQuery) -> Page[Organization]:
    """List the organizations one may see: one's own, or all for the operating organization."""
    table = organizations.c
    statement = _visible(call).where(equal(table.name, query.name), is_set(table.disabled_at, query.disabled))
    return await page_of(call.connection, Organization, statement, query, table.created_at, table.id)


async def create_organization(call: AdminCall, body: NewOrganization) -> Organization:
    """Make an organization. It has no members and no projects yet."""
    return await add_organization(call, body.name)


async def get_organization(call: AdminCall, organization_id: UUID) -> Organization:
    """One organization."""
    return await find_organization(call, organization_id)


async def update_organization(call: AdminCall, organization_id: UUID, body: OrganizationChanges) -> Organization:
    """Rename, disable or enable an organization.

    Disabled, all its inference keys are refused within a second and all its admin keys at once; only the operating
    organization can do that or undo it, and it cannot be disabled itself.
    """
    before = await find_organization(call, organization_id, for_update=True)
    if body.disabled is not UNSET:
        call.principal.require(None, deployment=True)
        if before.operator and body.disabled:
            raise Conflict("The operating organization cannot be disabled: nobody could enable it again.")
    disabled = before.disabled_at is not None if body.disabled is UNSET else body.disabled
    after = await call.one(
        Organization,
        update(organizations)
        .where(organizations.c.id == organization_id)
        .values(
            name=before.name if body.name is UNSET else body.name,
            disabled_at=set_if(disabled, organizations.c.disabled_at),
        )
        .returning(*COLUMNS),
    )
    call.audit("organization.update", after.id, organization_id=after.id, before=before, after=after)
    return after


def _visible(call: AdminCall) -> Select[Any]:
    return select(*COLUMNS).where(call.sees(organizations.c.id))
