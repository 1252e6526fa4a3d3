"""OpenAI's lists of an organization's projects, users and admin keys, converted from this deployment's objects."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta
from sqlalchemy import select

from control.api.call import AdminCall
from control.api.key_resource import KeyState
from control.api.pages import cursor_of
from control.api.resource import Resource
from control.api.schemas import Query
from control.tenants import admin_keys, members, projects
from storage.roles import PrincipalKind, Role
from storage.rows import fetch
from storage.tables.tenants import principals

ItemT = TypeVar("ItemT")


class ListQuery(Query, frozen=True, kw_only=True):
    """Selects a page of a list, newest first."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    """Maximum number of items."""
    after: UUID | None = None
    """`last_id` of the previous page."""
    organization_id: UUID | None = None
    """An extension: another organization, for members of the operating organization."""


class ProjectListQuery(ListQuery, frozen=True, kw_only=True):
    """Selects a page of projects."""

    include_archived: bool = False
    """Include disabled projects."""


class OpenAiProject(msgspec.Struct, frozen=True, kw_only=True):
    """A project. archived: it is disabled."""

    id: UUID
    name: str
    created_at: int
    archived_at: int | None
    status: Literal["active", "archived"]
    object: Literal["organization.project"] = "organization.project"


class OpenAiUser(msgspec.Struct, frozen=True, kw_only=True):
    """A member. role: `owner` for owners, `reader` for all others."""

    id: UUID
    name: str
    email: str
    role: Literal["owner", "reader"]
    added_at: int
    object: Literal["organization.user"] = "organization.user"


class KeyOwner(msgspec.Struct, frozen=True, kw_only=True):
    """The member or service account that an admin key acts for."""

    id: UUID
    name: str
    type: Literal["user", "service_account"]
    created_at: int
    role: Role
    object: Literal["organization.user", "organization.service_account"]


class OpenAiAdminKey(msgspec.Struct, frozen=True, kw_only=True):
    """An admin key without its secret."""

    id: UUID
    name: str
    redacted_value: str
    created_at: int
    last_used_at: int | None
    expires_at: int | None
    owner: KeyOwner
    object: Literal["organization.admin_api_key"] = "organization.admin_api_key"


class OpenAiList(msgspec.Struct, Generic[ItemT], frozen=True, kw_only=True):
    """Part of a list."""

    data: list[ItemT]
    first_id: UUID | None
    last_id: UUID | None
    """Send it as `after` for the next page."""
    has_more: bool
    object: Literal["list"] = "list"


async def list_organization_projects(call: AdminCall, query: ProjectListQuery) -> OpenAiList[OpenAiProject]:
    """List an organization's projects, newest first."""
    selection = projects.ProjectQuery(
        limit=query.limit,
        cursor=await _cursor(call, query, projects.PROJECTS),
        disabled=None if query.include_archived else False,
    )
    page = await projects.list_projects(call, _organization(call, query), selection)
    return _listed([_project(each) for each in page.data], has_more=page.has_more)


async def get_organization_project(call: AdminCall, project_id: UUID) -> OpenAiProject:
    """Get a project."""
    return _project(await projects.get_project(call, project_id))


async def list_organization_users(call: AdminCall, query: ListQuery) -> OpenAiList[OpenAiUser]:
    """List an organization's members, newest first."""
    selection = members.MemberQuery(limit=query.limit, cursor=await _cursor(call, query, members.MEMBERS))
    page = await members.list_members(call, _organization(call, query), selection)
    return _listed([_user(each) for each in page.data], has_more=page.has_more)


async def get_organization_user(call: AdminCall, member_id: UUID) -> OpenAiUser:
    """Get a member."""
    return _user(await members.get_member(call, member_id))


async def list_organization_admin_keys(call: AdminCall, query: ListQuery) -> OpenAiList[OpenAiAdminKey]:
    """List an organization's valid admin keys, newest first."""
    selection = admin_keys.AdminKeyQuery(
        limit=query.limit, cursor=await _cursor(call, query, admin_keys.ADMIN_KEYS), state=KeyState.ACTIVE
    )
    page = await admin_keys.list_admin_keys(call, _organization(call, query), selection)
    return _listed(await _admin_keys(call, page.data), has_more=page.has_more)


async def get_organization_admin_key(call: AdminCall, admin_key_id: UUID) -> OpenAiAdminKey:
    """Get an admin key."""
    (found,) = await _admin_keys(call, [await admin_keys.get_admin_key(call, admin_key_id)])
    return found


def _organization(call: AdminCall, query: ListQuery) -> UUID:
    return query.organization_id or call.principal.organization_id


async def _cursor(call: AdminCall, query: ListQuery, resource: Resource[Any]) -> str | None:
    """The admin API's cursor after the last item that the client has seen. Raises NotFound if it does not exist."""
    if query.after is None:
        return None
    last = await resource.find(call, query.after)
    return cursor_of([last.created_at, last.id])


class _HasId(Protocol):
    @property
    def id(self) -> UUID: ...


HasIdT = TypeVar("HasIdT", bound=_HasId)


def _listed(data: list[HasIdT], *, has_more: bool) -> OpenAiList[HasIdT]:
    return OpenAiList(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )


def _project(project: projects.Project) -> OpenAiProject:
    return OpenAiProject(
        id=project.id,
        name=project.name,
        created_at=_seconds(project.created_at),
        archived_at=None if project.disabled_at is None else _seconds(project.disabled_at),
        status="active" if project.disabled_at is None else "archived",
    )


def _user(member: members.Member) -> OpenAiUser:
    return OpenAiUser(
        id=member.id,
        name=member.name,
        email=member.email,
        role="owner" if member.role is Role.OWNER else "reader",
        added_at=_seconds(member.created_at),
    )


async def _admin_keys(call: AdminCall, keys: list[admin_keys.AdminKey]) -> list[OpenAiAdminKey]:
    """Convert keys, and add their owners."""
    table = principals.c
    wanted = select(table.id, table.name, table.created_at).where(table.id.in_({key.principal_id for key in keys}))
    owners = {row["id"]: row for row in await fetch(call.connection, wanted)} if keys else {}
    return [
        OpenAiAdminKey(
            id=key.id,
            name=key.name,
            redacted_value=key.display,
            created_at=_seconds(key.created_at),
            last_used_at=None if key.last_used_at is None else _seconds(key.last_used_at),
            expires_at=None if key.expires_at is None else _seconds(key.expires_at),
            owner=_owner(key, owners[key.principal_id]),
        )
        for key in keys
    ]


def _owner(key: admin_keys.AdminKey, row: Any) -> KeyOwner:
    member = key.principal_kind is PrincipalKind.MEMBER
    return KeyOwner(
        id=key.principal_id,
        name=row["name"],
        type="user" if member else "service_account",
        created_at=_seconds(row["created_at"]),
        role=key.role,
        object="organization.user" if member else "organization.service_account",
    )


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
