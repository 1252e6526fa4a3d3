"""Projects of an organization: what their keys may use, and whether the keys are valid at all."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from contracts.errors import InvalidField, PermissionDenied
from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.resource import Bound, Resource
from control.api.schemas import Body, LongPageQuery, ModelNames, Name, Page, Tiers
from storage.rows import equal, is_set
from storage.tables.core import projects


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project. models, tiers: what its keys may use; null for all. disabled_at: the time since which its keys are
    refused; null while it is enabled. allow_reviews: whether reviewers of the operating organization may read its
    prompts and responses."""

    id: UUID
    organization_id: UUID
    name: str
    models: list[str] | None
    tiers: list[Tier] | None
    created_at: datetime
    disabled_at: datetime | None
    allow_reviews: bool


class NewProject(Body, frozen=True, kw_only=True):
    """name: unique within the organization. models, tiers: what its keys may use; null for all."""

    name: Name
    models: ModelNames | None = None
    tiers: Tiers | None = None


class ProjectChanges(Body, frozen=True, kw_only=True):
    """The fields to change. Omitted fields keep their values; null allows all."""

    name: Name | UnsetType = UNSET
    models: ModelNames | UnsetType | None = UNSET
    tiers: Tiers | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET
    allow_reviews: bool | UnsetType = UNSET


class ProjectQuery(LongPageQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None
    disabled: bool | None = None


PROJECTS = Resource(
    "project",
    Project,
    projects,
    projects,
    bound=Bound("projects", "projects that are enabled", "disable", projects.c.disabled_at.is_(None)),
)


async def list_projects(call: AdminCall, organization_id: UUID, query: ProjectQuery) -> Page[Project]:
    """List an organization's projects, newest first."""
    await call.require_organization(organization_id)
    table = projects.c
    matching = (equal(table.name, query.name), is_set(table.disabled_at, query.disabled))
    return await PROJECTS.page(call, query, table.organization_id == organization_id, *matching)


async def create_project(call: AdminCall, organization_id: UUID, body: NewProject) -> Project:
    """Create a project."""
    await call.require_organization(organization_id)
    _require_models(call, body.models)
    await PROJECTS.require_room(call, organization_id)
    return await PROJECTS.create(call, organization_id=organization_id, **PROJECTS.values_of(body))


async def get_project(call: AdminCall, project_id: UUID) -> Project:
    """Get a project."""
    return await PROJECTS.find(call, project_id)


async def update_project(call: AdminCall, project_id: UUID, body: ProjectChanges) -> Project:
    """Rename, disable or enable a project, or change what its keys may use or whether it allows reviews.

    Gateways apply a change within a second. Only members of the organization itself can turn on `allow_reviews`.
    Turning it off deletes the texts stored for reviewers at once.
    """
    before = await PROJECTS.find(call, project_id, for_update=True)
    if body.allow_reviews is True and not call.principal.speaks_for(before.organization_id):
        raise PermissionDenied("Only members of the organization itself may allow reviews of its requests.")
    if body.models is not UNSET:
        _require_models(call, body.models)
    if body.disabled is False and before.disabled_at is not None:
        await PROJECTS.require_room(call, before.organization_id)
    return await PROJECTS.update(call, before, PROJECTS.values_of(body))


def _require_models(call: AdminCall, models: list[str] | None) -> None:
    """Raises InvalidField for an unknown name, which would silently give access to nothing."""
    known = [model.name for model in call.fleet.models]
    for number, name in enumerate(models or ()):
        if name not in known:
            raise InvalidField(
                f"Invalid value for 'models[{number}]': this deployment has no model {name!r}; "
                f"it has: {', '.join(known) or 'none'}.",
                param=f"models[{number}]",
            )
