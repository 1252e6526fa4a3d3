"""Organizations: whom the deployment serves. Their ids are on every bill, so they are disabled and never deleted."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from contracts.errors import Conflict
from gateway.admin.bodies import Body, Name, Page, PageQuery
from gateway.admin.call import AdminCall, not_found
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of, record_of
from gateway.tenants.roles import Permission

SELECT = "SELECT id, name, operator, created_at, disabled_at FROM gateway.organizations"


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


async def find_organization(call: AdminCall, organization_id: UUID, *, for_update: bool = False) -> Organization:
    """Raises NotFound, for another organization's principal too."""
    row = await call.connection.fetchrow(
        f"{SELECT} WHERE id = $1 AND ($2::uuid IS NULL OR id = $2) {'FOR UPDATE' if for_update else ''}",
        organization_id,
        call.scope,
    )
    if row is None:
        raise not_found("organization", organization_id)
    return record_of(Organization, row)


async def add_organization(call: AdminCall, name: str, *, operator: bool = False) -> Organization:
    """The new one. operator: its members run the deployment; there is one such organization at most."""
    row = await call.connection.fetchrow(
        "INSERT INTO gateway.organizations (name, operator) VALUES ($1, $2)"
        " RETURNING id, name, operator, created_at, disabled_at",
        name,
        operator,
    )
    organization = record_of(Organization, row)
    call.audit("organization.create", organization.id, organization_id=organization.id, after=organization)
    return organization


@endpoint("GET", "/organizations", Permission.ORGANIZATION_READ)
async def list_organizations(call: AdminCall, query: OrganizationQuery) -> Page[Organization]:
    """List the organizations one may see: one's own, or all for the operating organization."""
    where = call.where("organizations.id")
    where.add_if("name = {}", query.name)
    where.add_if("(disabled_at IS NOT NULL) = {}", query.disabled)
    return await page_of(call.connection, Organization, SELECT, where, query, table="organizations")


@endpoint("POST", "/organizations", Permission.ORGANIZATION_WRITE, deployment=True)
async def create_organization(call: AdminCall, body: NewOrganization) -> Organization:
    """Make an organization. It has no members and no projects yet."""
    return await add_organization(call, body.name)


@endpoint("GET", "/organizations/{organization_id}", Permission.ORGANIZATION_READ)
async def get_organization(call: AdminCall, organization_id: UUID) -> Organization:
    """One organization."""
    return await find_organization(call, organization_id)


@endpoint("PATCH", "/organizations/{organization_id}", Permission.ORGANIZATION_WRITE)
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
    row = await call.connection.fetchrow(
        "UPDATE gateway.organizations SET name = $2,"
        " disabled_at = CASE WHEN $3 THEN coalesce(disabled_at, now()) END"
        " WHERE id = $1 RETURNING id, name, operator, created_at, disabled_at",
        organization_id,
        before.name if body.name is UNSET else body.name,
        before.disabled_at is not None if body.disabled is UNSET else body.disabled,
    )
    after = record_of(Organization, row)
    call.audit("organization.update", after.id, organization_id=after.id, before=before, after=after)
    return after


ENDPOINTS = (list_organizations, create_organization, get_organization, update_organization)
