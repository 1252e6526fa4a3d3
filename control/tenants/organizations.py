"""The organizations that the deployment serves. Every bill has their ids, so they are disabled and never deleted."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from contracts.errors import Conflict, PermissionDenied
from control.api.call import AdminCall
from control.api.resource import Resource
from control.api.schemas import Body, LongPageQuery, Name, Page
from storage.rows import equal, is_set
from storage.tables.core import organizations


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization. operator: its members run the deployment. internal: the deployment's own, which is no customer
    and on no bill. disabled_at: since when its keys are refused.
    store_prompts: what is asked and answered at gaps, and where its prompts differ from those before, is kept for its
    own administrators; and where the deployment reviews candidates (`gateway.shadow.review_share`), some of its prompts
    with two answers for the operating organization's reviewers."""

    id: UUID
    name: str
    operator: bool
    internal: bool
    created_at: datetime
    disabled_at: datetime | None
    store_prompts: bool


class NewOrganization(Body, frozen=True, kw_only=True):
    """name: as people call it; others may have the same."""

    name: Name


class OrganizationChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays."""

    name: Name | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    store_prompts: bool | UnsetType = UNSET


class OrganizationQuery(LongPageQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None
    disabled: bool | None = None


ORGANIZATIONS = Resource("organization", Organization, organizations, organizations)


async def list_organizations(call: AdminCall, query: OrganizationQuery) -> Page[Organization]:
    """List the organizations one may see: one's own, or all for the operating organization."""
    table = organizations.c
    matching = (equal(table.name, query.name), is_set(table.disabled_at, query.disabled))
    return await ORGANIZATIONS.page(call, query, *matching)


async def create_organization(call: AdminCall, body: NewOrganization) -> Organization:
    """Make an organization. It has no members and no projects yet."""
    return await ORGANIZATIONS.create(call, name=body.name)


async def get_organization(call: AdminCall, organization_id: UUID) -> Organization:
    """One organization."""
    return await ORGANIZATIONS.find(call, organization_id)


async def update_organization(call: AdminCall, organization_id: UUID, body: OrganizationChanges) -> Organization:
    """Rename, disable or enable an organization, or say whether its prompts are stored.

    Disabled, all its inference keys are refused within a second and all its admin keys at once; only the operating
    organization can do that or undo it, and it cannot be disabled itself.

    `store_prompts` is turned on by the organization's own owners only. What was stored is deleted at once when it is
    turned off.
    """
    before = await ORGANIZATIONS.find(call, organization_id, for_update=True)
    if body.disabled is not UNSET:
        call.principal.require(None, operator_only=True)
        if before.operator and body.disabled:
            raise Conflict("The operating organization cannot be disabled: no one could enable it again.")
    if body.store_prompts is True and not call.principal.speaks_for(organization_id):
        raise PermissionDenied("Only the organization's own owners may have its prompts stored.")
    return await ORGANIZATIONS.update(call, before, ORGANIZATIONS.values_of(body))
