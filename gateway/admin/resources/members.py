"""Members: people with a role in an organization. They act by admin keys of their own."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from gateway.admin.bodies import Body, Deleted, Email, Name, Page, PageQuery
from gateway.admin.call import AdminCall
from gateway.admin.endpoint import endpoint
from gateway.admin.pages import page_of
from gateway.admin.principals import (
    SELECT,
    PrincipalChanges,
    change_principal,
    delete_principal,
    find_principal,
    insert_principal,
)
from gateway.tenants.roles import Permission, PrincipalKind, Role

KIND = PrincipalKind.MEMBER


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member. disabled_at: since when the member's admin keys are refused."""

    id: UUID
    organization_id: UUID
    email: str
    name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


class NewMember(Body, frozen=True, kw_only=True):
    """email: unique in the organization, capitals apart."""

    email: Email
    name: Name
    role: Role


class MemberChanges(PrincipalChanges, frozen=True, kw_only=True):
    """What to change; what is left out stays."""


class MemberQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    role: Role | None = None
    email: Email | None = None
    disabled: bool | None = None


@endpoint("GET", "/organizations/{organization_id}/members", Permission.MEMBERS_READ)
async def list_members(call: AdminCall, organization_id: UUID, query: MemberQuery) -> Page[Member]:
    """List an organization's members, newest first."""
    await call.require_organization(organization_id)
    where = call.where()
    where.add("organization_id = {}", organization_id)
    where.add("kind = {}", KIND.value)
    where.add_if("role = {}", query.role and query.role.value)
    where.add_if("lower(email) = lower({})", query.email)
    where.add_if("(disabled_at IS NOT NULL) = {}", query.disabled)
    return await page_of(call.connection, Member, SELECT, where, query, table="principals")


@endpoint("POST", "/organizations/{organization_id}/members", Permission.MEMBERS_WRITE)
async def create_member(call: AdminCall, organization_id: UUID, body: NewMember) -> Member:
    """Add a member. Nobody can give a role that may do more than their own."""
    row = await insert_principal(call, organization_id, KIND, body.email, body.name, body.role)
    member = msgspec.convert(row, Member)
    call.audit("member.create", member.id, organization_id=organization_id, after=member)
    return member


@endpoint("GET", "/members/{member_id}", Permission.MEMBERS_READ)
async def get_member(call: AdminCall, member_id: UUID) -> Member:
    """One member."""
    return msgspec.convert(await find_principal(call, member_id, KIND), Member)


@endpoint("PATCH", "/members/{member_id}", Permission.MEMBERS_WRITE)
async def update_member(call: AdminCall, member_id: UUID, body: MemberChanges) -> Member:
    """Change a member's name or role, disable or enable the member. The last owner stays one."""
    row = await find_principal(call, member_id, KIND, for_update=True)
    before = msgspec.convert(row, Member)
    changed = await change_principal(call, row, body)
    after = msgspec.convert(changed, Member)
    call.audit("member.update", after.id, organization_id=after.organization_id, before=before, after=after)
    return after


@endpoint("DELETE", "/members/{member_id}", Permission.MEMBERS_WRITE)
async def delete_member(call: AdminCall, member_id: UUID) -> Deleted:
    """Remove a member and all the member's admin keys. The last owner stays."""
    row = await find_principal(call, member_id, KIND, for_update=True)
    await delete_principal(call, row)
    member = msgspec.convert(row, Member)
    call.audit("member.delete", member_id, organization_id=member.organization_id, before=member)
    return Deleted(id=member_id)


ENDPOINTS = (list_members, create_member, get_member, update_member, delete_member)
