"""All limits within an organization: its own, its projects' and its keys', each with the name of its subject."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import and_, func, literal, null, select, union_all

from contracts.generation import Tier
from control.api.call import AdminCall
from control.api.key_resource import KeyState, state_of
from control.api.pages import page_of
from control.api.schemas import LongPageQuery, Page
from control.tenants.limit_tables import limits
from gateway.limits.levels import Level, Limits
from storage.rows import columns_of, equal
from storage.tables.core import api_keys, organizations, projects


class LimitWithin(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and its subject. rule_name: unique within the organization. project_id, project_name: the project of the
    rule or of its key; null for the organization's own rules. tier: null for all tiers together."""

    rule_name: str
    level: Level
    subject_id: UUID
    name: str
    project_id: UUID | None
    project_name: str | None
    tier: Tier | None
    limits: Limits
    updated_at: datetime


class LimitsWithinQuery(LongPageQuery, frozen=True, kw_only=True):
    """Filters. project_id: only rules of this project and its keys."""

    project_id: UUID | None = None


async def list_limits_within(call: AdminCall, organization_id: UUID, query: LimitsWithinQuery) -> Page[LimitWithin]:
    """List the limits of an organization, its projects and their keys, the most recently set first.

    A request must keep every rule of its key, its project and its organization, both for its tier and for all tiers.
    Rules of revoked or expired keys have no effect and are not listed.
    """
    await call.require_organization(organization_id)
    project = (projects.c.id.label("project_id"), projects.c.name.label("project_name"))
    subjects = union_all(
        select(
            literal(Level.ORGANIZATION.value).label("level"),
            organizations.c.id,
            organizations.c.name,
            null().label("project_id"),
            null().label("project_name"),
        ).where(organizations.c.id == organization_id),
        select(literal(Level.PROJECT.value), projects.c.id, projects.c.name, *project).where(
            projects.c.organization_id == organization_id
        ),
        select(literal(Level.KEY.value), api_keys.c.id, api_keys.c.name, *project)
        .select_from(api_keys.join(projects))
        .where(projects.c.organization_id == organization_id, state_of(api_keys) == KeyState.ACTIVE.value),
    ).subquery("subjects")
    # like `Rule.name` of gateway/limits/levels.py
    named = func.concat(limits.c.level, ":", limits.c.subject_id, ":", func.coalesce(limits.c.tier, "*"))
    pairs = [part for name in Limits.__struct_fields__ for part in (literal(name), limits.c[name])]
    rules = (
        select(*columns_of(LimitWithin, limits, subjects, rule_name=named, limits=func.jsonb_build_object(*pairs)))
        .select_from(
            limits.join(subjects, and_(limits.c.subject_id == subjects.c.id, limits.c.level == subjects.c.level))
        )
        .where(equal(subjects.c.project_id, query.project_id))
        .subquery("rules")
    )
    return await page_of(call.connection, LimitWithin, select(rules), query, rules.c.updated_at, rules.c.rule_name)
