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
    """An organization. operator: whether its members run the deployment. internal: whether it is the deployment's own;
    it is then no customer and never billed. disabled_at: the time since which its keys are refused; null while it is
    enabled.

    store_prompts: whether the deployment stores the prompts and completions of its filled gaps, and the texts at which
    its prompts differ from earlier ones, for its own administrators. If the deployment reviews candidates
    (`gateway.shadow.review_share`), it also stores some prompts with two answers for reviewers of the operating
    organization.
    """

    id: UUID
    name: str
    operator: bool
    internal: bool
    created_at: datetime
    disabled_at: datetime | None
    store_prompts: bool


class NewOrganization(Body, frozen=True, kw_only=True):
    """name: the name shown to people. It need not be unique."""

    name: Name


class OrganizationChanges(Body, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their values."""

    name: Name | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET
    store_prompts: bool | UnsetType = UNSET


class OrganizationQuery(LongPageQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None
    disabled: bool | None = None


ORGANIZATIONS = Resource("organization", Organization, organizations, organizations)


async def list_organizations(call: AdminCall, query: OrganizationQuery) -> Page[Organization]:
    """List the organizations that the caller may see: its own, or all for the operating organization."""
    table = organizations.c
    matching = (equal(table.name, query.name), is_set(table.disabled_at, query.disabled))
    return await ORGANIZATIONS.page(call, query, *matching)


async def create_organization(call: AdminCall, body: NewOrganization) -> Organization:
    """Create an organization. It starts without members and projects."""
    return await ORGANIZATIONS.create(call, name=body.name)


async def get_organization(call: AdminCall, organization_id: UUID) -> Organization:
    """Get an organization."""
    return await ORGANIZATIONS.find(call, organization_id)


async def update_organization(call: AdminCall, organization_id: UUID, body: OrganizationChanges) -> Organization:
    """Rename, disable or enable an organization, or change whether its prompts are stored.

    Disabling an organization revokes access for all its admin keys at once, and for all its inference keys within a
    second. Only the operating organization can disable or enable one, and it cannot disable itself.

    Only the organization's own owners can turn on `store_prompts`. Turning it off deletes the stored texts at once.
    """
    before = await ORGANIZATIONS.find(call, organization_id, for_update=True)
    if body.disabled is not UNSET:
        call.principal.require(None, operator_only=True)
        if before.operator and body.disabled:
            raise Conflict("The operating organization cannot be disabled: no one could enable it again.")
    if body.store_prompts is True and not call.principal.speaks_for(organization_id):
        raise PermissionDenied("Only the organization's own owners may turn on the storage of its prompts.")
    return await ORGANIZATIONS.update(call, before, ORGANIZATIONS.values_of(body))
