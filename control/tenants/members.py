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
    """A member. has_account: the member has signed in to the console at least once, by a link or a provider.
    disabled_at: since when the member's admin keys are refused."""

    email: str
    has_account: bool


_ACCOUNTS = table("console_accounts", column("principal_id"), schema="gateway")
HAS_ACCOUNT = exists().where(_ACCOUNTS.c.principal_id == principals.c.id)
MEMBERS = PrincipalResource.of(PrincipalKind.MEMBER, Member, has_account=HAS_ACCOUNT)


class NewMember(Body, frozen=True, kw_only=True):
    """email: unique in the organization, capitals apart."""

    email: Email
    name: Name
    role: Role


class MemberChanges(PrincipalChanges, frozen=True, kw_only=True):
    """What to change; what is left out stays."""


class MemberQuery(HolderQuery, frozen=True, kw_only=True):
    """Filters."""

    email: Email | None = None


async def list_members(call: AdminCall, organization_id: UUID, query: MemberQuery) -> Page[Member]:
    """List an organization's members, newest first."""
    email = None if query.email is None else func.lower(query.email)
    return await MEMBERS.list_of(call, organization_id, query, equal(func.lower(principals.c.email), email))


async def create_member(call: AdminCall, organization_id: UUID, body: NewMember) -> Member:
    """Add a member. Nobody can give a role that may do more than their own."""
    return await MEMBERS.add(call, organization_id, body.role, body)


async def get_member(call: AdminCall, member_id: UUID) -> Member:
    """One member."""
    return await MEMBERS.find(call, member_id)


async def update_member(call: AdminCall, member_id: UUID, body: MemberChanges) -> Member:
    """Change a member's name or role, disable or enable the member. The last owner stays one."""
    return await MEMBERS.change(call, member_id, body)


async def delete_member(call: AdminCall, member_id: UUID) -> Deleted:
    """Remove a member and all the member's admin keys. The last owner stays."""
    return await MEMBERS.remove(call, member_id)
