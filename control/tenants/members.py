"""Members: people with a role in an organization. They act with admin keys or in the console."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import column, exists, func, table

from control.api.call import AdminCall
from control.api.schemas import Body, Deleted, Email, Name, Page
from control.tenants.principals import Holder, HolderQuery, PrincipalChanges, PrincipalResource
from storage.roles import PrincipalKind, Role
from storage.rows import equal
from storage.tables.tenants import principals


class Member(Holder, frozen=True, kw_only=True):
    """A member. has_account: whether the member has ever signed in to the console, by a link or through a provider.
    disabled_at: the time since which the member's admin keys are refused; null while the member is enabled."""

    email: str
    has_account: bool


_ACCOUNTS = table("console_accounts", column("principal_id"), schema="gateway")
HAS_ACCOUNT = exists().where(_ACCOUNTS.c.principal_id == principals.c.id)
MEMBERS = PrincipalResource.of(PrincipalKind.MEMBER, Member, has_account=HAS_ACCOUNT)


class NewMember(Body, frozen=True, kw_only=True):
    """email: unique within the organization, regardless of case."""

    email: Email
    name: Name
    role: Role


class MemberChanges(PrincipalChanges, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their values."""


class MemberQuery(HolderQuery, frozen=True, kw_only=True):
    """Filters."""

    email: Email | None = None


async def list_members(call: AdminCall, organization_id: UUID, query: MemberQuery) -> Page[Member]:
    """List an organization's members, newest first."""
    email = None if query.email is None else func.lower(query.email)
    return await MEMBERS.list_of(call, organization_id, query, equal(func.lower(principals.c.email), email))


async def create_member(call: AdminCall, organization_id: UUID, body: NewMember) -> Member:
    """Add a member. Its role must not allow more than the caller's own role."""
    return await MEMBERS.add(call, organization_id, body.role, body)


async def get_member(call: AdminCall, member_id: UUID) -> Member:
    """Get a member."""
    return await MEMBERS.find(call, member_id)


async def update_member(call: AdminCall, member_id: UUID, body: MemberChanges) -> Member:
    """Rename a member, change its role, or disable or enable it. The last owner cannot lose that role."""
    return await MEMBERS.change(call, member_id, body)


async def delete_member(call: AdminCall, member_id: UUID) -> Deleted:
    """Remove a member and all its admin keys. The last owner cannot be removed."""
    return await MEMBERS.remove(call, member_id)
