"""Projects of an organization: what its keys may use, and whether they work at all."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType
from sqlalchemy import insert, select, update

from contracts.errors import InvalidField
from contracts.generation import Tier
from gateway.admin.bodies import Body, ModelNames, Name, Page, PageQuery, Tiers
from gateway.admin.call import AdminCall
from gateway.admin.pages import page_of
from gateway.admin.rows import columns_of, equal, is_set, set_if, sorted_unique
from gateway.db.tables import projects


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A project. models, tiers: what its keys may use, null for all; disabled_at: since when they are refused."""

    id: UUID
    organization_id: UUID
    name: str
    models: list[str] | None
    tiers: list[Tier] | None
    created_at: datetime
    disabled_at: datetime | None


class NewProject(Body, frozen=True, kw_only=True):
    """name: unique in the organization. models, tiers: what its keys may use; null for all."""

    name: Name
    models: ModelNames | None = None
    tiers: Tiers | None = None


class ProjectChanges(Body, frozen=True, kw_only=True):
    """What to change; what is left out stays, and null gives access to all."""

    name: Name | UnsetType = UNSET
    models: ModelNames | UnsetType | None = UNSET
    tiers: Tiers | UnsetType | None = UNSET
    disabled: bool | UnsetType = UNSET


class ProjectQuery(PageQuery, frozen=True, kw_only=True):
    """Filters."""

    name: Name | None = None
    disabled: bool | None = None


COLUMNS = columns_of(Project, projects)


async def find_project(call: AdminCall, project_id: UUID, *, for_update: bool = False) -> Project:
    """Raises NotFound, for another organization's principal too."""
    statement = select(*COLUMNS).where(projects.c.id == project_id, call.sees(projects.c.organization_id))
    statement = statement.with_for_update() if for_update else statement
    return await call.find(Project, statement, "project", project_id)


async def list_projects(call: AdminCall, organization_id: UUID, query: ProjectQuery) -> Page[Project]:
    """List an organization's projects, newest first."""
    await call.require_organization(organization_id)
    table = projects.c
    statement = select(*COLUMNS).where(
        table.organization_id == organization_id,
        equal(table.name, query.name),
        is_set(table.disabled_at, query.disabled),
    )
    return await page_of(call.connection, Project, statement, query, table.created_at, table.id)


async def create_project(call: AdminCall, organization_id: UUID, body: NewProject) -> Project:
    """Make a project."""
    await call.require_organization(organization_id)
    _require_models(call, body.models)
    project = await call.one(
        Project,
        insert(projects)
        .values(
            organization_id=organization_id,
            name=body.name,
            models=sorted_unique(body.models),
            tiers=sorted_unique(body.tiers),
        )
        .returning(*COLUMNS),
    )
    call.audit("project.create", project.id, organization_id=organization_id, after=project)
    return project


async def get_project(call: AdminCall, project_id: UUID) -> Project:
    """One project."""
    return await find_project(call, project_id)


async def update_project(call: AdminCall, project_id: UUID, body: ProjectChanges) -> Project:
    """Rename a project, change what its keys may use, disable or enable it. Gateways follow within a second."""
    before = await find_project(call, project_id, for_update=True)
    models = before.models if body.models is UNSET else body.models
    if body.models is not UNSET:
        _require_models(call, body.models)
    disabled = before.disabled_at is not None if body.disabled is UNSET else body.disabled
    after = await call.one(
        Project,
        update(projects)
        .where(projects.c.id == project_id)
        .values(
            name=before.name if body.name is UNSET else body.name,
            models=sorted_unique(models),
            tiers=sorted_unique(before.tiers if body.tiers is UNSET else body.tiers),
            disabled_at=set_if(disabled, projects.c.disabled_at),
        )
        .returning(*COLUMNS),
    )
    call.audit("project.update", after.id, organization_id=after.organization_id, before=before, after=after)
    return after


def _require_models(call: AdminCall, models: list[str] | None) -> None:
    """A mistyped name would quietly give access to nothing."""
    known = [model.name for model in call.fleet.models]
    for number, name in enumerate(models or ()):
        if name not in known:
            raise InvalidField(
                f"Invalid value for 'models[{number}]': this deployment has no model {name!r}; "
                f"it has: {', '.join(known) or 'none'}.",
                param=f"models[{number}]",
            )
