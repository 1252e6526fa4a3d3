"""Limits of an organization, a project or a key: for all tiers together, or for one. And what is left of them now.

An organization's own limits are the deployment's business; within them its administrators divide.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from contracts.errors import NotFound
from contracts.generation import Tier
from gateway.admin.bodies import Body
from gateway.admin.call import AdminCall
from gateway.admin.endpoint import endpoint
from gateway.limits import store
from gateway.limits.counter_snapshot import CounterSnapshot
from gateway.limits.levels import Level, Limits, Micro, PerDay, PerMinute, Rule
from gateway.tenants.roles import Permission

ALL_TIERS = "all"


class NewLimits(Body, frozen=True, kw_only=True):
    """What the rule allows from now on; what is left out or null is not limited. Money is in millionths of the
    deployment's currency, days and months are UTC's."""

    requests_per_minute: PerMinute | None = None
    input_tokens_per_minute: PerMinute | None = None
    output_tokens_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    max_concurrency: PerMinute | None = None
    tokens_per_day: PerDay | None = None
    money_micro_per_month: Micro | None = None


class LimitRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. tier: null for all tiers together. Of several that concern a request, the strictest wins."""

    level: Level
    subject_id: UUID
    tier: Tier | None
    limits: Limits


class LimitRules(msgspec.Struct, frozen=True, kw_only=True):
    """All rules of a subject: that for all tiers first."""

    data: list[LimitRule]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Where each limited counter of a subject stands now, what runs included.

    money_counted: false while what a budget has spent is being counted; `remaining` is then too high.
    """

    data: list[CounterSnapshot]
    money_counted: bool


@endpoint("GET", "/organizations/{organization_id}/limits", Permission.LIMITS_READ)
async def get_organization_limits(call: AdminCall, organization_id: UUID) -> LimitRules:
    """An organization's limits."""
    await call.require_organization(organization_id)
    return await _rules(call, Level.ORGANIZATION, organization_id)


@endpoint("GET", "/organizations/{organization_id}/limits/counters", Permission.LIMITS_READ)
async def get_organization_counters(call: AdminCall, organization_id: UUID) -> Counters:
    """What is left of an organization's limits."""
    await call.require_organization(organization_id)
    return await _counters(call, organization_id, Level.ORGANIZATION, organization_id)


@endpoint("PUT", "/organizations/{organization_id}/limits/{tier_name}", Permission.LIMITS_WRITE, deployment=True)
async def put_organization_limits(call: AdminCall, organization_id: UUID, tier_name: str, body: NewLimits) -> LimitRule:
    """Set an organization's limits for a tier, or for `all` together."""
    await call.require_organization(organization_id)
    return await _put(call, organization_id, Level.ORGANIZATION, organization_id, tier_name, body)


@endpoint("DELETE", "/organizations/{organization_id}/limits/{tier_name}", Permission.LIMITS_WRITE, deployment=True)
async def delete_organization_limits(call: AdminCall, organization_id: UUID, tier_name: str) -> LimitRules:
    """Lift an organization's limits for a tier, or those for `all` together. Answers what is left."""
    await call.require_organization(organization_id)
    return await _delete(call, organization_id, Level.ORGANIZATION, organization_id, tier_name)


@endpoint("GET", "/projects/{project_id}/limits", Permission.LIMITS_READ)
async def get_project_limits(call: AdminCall, project_id: UUID) -> LimitRules:
    """A project's limits."""
    await call.organization_of_project(project_id)
    return await _rules(call, Level.PROJECT, project_id)


@endpoint("GET", "/projects/{project_id}/limits/counters", Permission.LIMITS_READ)
async def get_project_counters(call: AdminCall, project_id: UUID) -> Counters:
    """What is left of a project's limits."""
    return await _counters(call, await call.organization_of_project(project_id), Level.PROJECT, project_id)


@endpoint("PUT", "/projects/{project_id}/limits/{tier_name}", Permission.LIMITS_WRITE)
async def put_project_limits(call: AdminCall, project_id: UUID, tier_name: str, body: NewLimits) -> LimitRule:
    """Set a project's limits for a tier, or for `all` together."""
    organization_id = await call.organization_of_project(project_id)
    return await _put(call, organization_id, Level.PROJECT, project_id, tier_name, body)


@endpoint("DELETE", "/projects/{project_id}/limits/{tier_name}", Permission.LIMITS_WRITE)
async def delete_project_limits(call: AdminCall, project_id: UUID, tier_name: str) -> LimitRules:
    """Lift a project's limits for a tier, or those for `all` together. Answers what is left."""
    organization_id = await call.organization_of_project(project_id)
    return await _delete(call, organization_id, Level.PROJECT, project_id, tier_name)


@endpoint("GET", "/keys/{key_id}/limits", Permission.LIMITS_READ)
async def get_key_limits(call: AdminCall, key_id: UUID) -> LimitRules:
    """A key's own limits."""
    await call.organization_of_key(key_id)
    return await _rules(call, Level.KEY, key_id)


@endpoint("GET", "/keys/{key_id}/limits/counters", Permission.LIMITS_READ)
async def get_key_counters(call: AdminCall, key_id: UUID) -> Counters:
    """What is left of a key's own limits."""
    return await _counters(call, await call.organization_of_key(key_id), Level.KEY, key_id)


@endpoint("PUT", "/keys/{key_id}/limits/{tier_name}", Permission.LIMITS_WRITE)
async def put_key_limits(call: AdminCall, key_id: UUID, tier_name: str, body: NewLimits) -> LimitRule:
    """Set a key's own limits for a tier, or for `all` together."""
    organization_id = await call.organization_of_key(key_id)
    return await _put(call, organization_id, Level.KEY, key_id, tier_name, body)


@endpoint("DELETE", "/keys/{key_id}/limits/{tier_name}", Permission.LIMITS_WRITE)
async def delete_key_limits(call: AdminCall, key_id: UUID, tier_name: str) -> LimitRules:
    """Lift a key's own limits for a tier, or those for `all` together. Answers what is left."""
    organization_id = await call.organization_of_key(key_id)
    return await _delete(call, organization_id, Level.KEY, key_id, tier_name)


async def _rules(call: AdminCall, level: Level, subject_id: UUID) -> LimitRules:
    rules = await store.rules_of(call.connection, level, subject_id)
    return LimitRules(data=[_shown(rule) for rule in rules])


async def _counters(call: AdminCall, organization_id: UUID, level: Level, subject_id: UUID) -> Counters:
    rules = await store.rules_of(call.connection, level, subject_id)
    if not rules:
        return Counters(data=[], money_counted=True)
    standings, counted = await call.counters.standing(str(organization_id), rules)
    return Counters(data=standings, money_counted=counted)


async def _put(
    call: AdminCall, organization_id: UUID, level: Level, subject_id: UUID, tier_name: str, body: NewLimits
) -> LimitRule:
    tier = _tier(tier_name)
    before = await _before(call, level, subject_id, tier)
    limits = Limits(*(getattr(body, name) for name in Limits.__struct_fields__))
    after = _shown(await store.put_rule(call.connection, level, subject_id, tier, limits))
    call.audit("limits.put", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def _delete(call: AdminCall, organization_id: UUID, level: Level, subject_id: UUID, tier_name: str) -> LimitRules:
    tier = _tier(tier_name)
    before = await _before(call, level, subject_id, tier)
    await store.delete_rule(call.connection, level, subject_id, tier)
    after = await _rules(call, level, subject_id)
    call.audit("limits.delete", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def _before(call: AdminCall, level: Level, subject_id: UUID, tier: Tier | None) -> LimitRule | None:
    rules = await store.rules_of(call.connection, level, subject_id)
    return next((_shown(rule) for rule in rules if rule.tier is tier), None)


def _tier(name: str) -> Tier | None:
    if name == ALL_TIERS:
        return None
    try:
        return Tier(name)
    except ValueError:
        names = ", ".join((ALL_TIERS, *Tier))
        raise NotFound(f"There is no tier {name!r}; there are: {names}.") from None


def _shown(rule: Rule) -> LimitRule:
    return LimitRule(level=rule.level, subject_id=UUID(rule.subject_id), tier=rule.tier, limits=rule.limits)


ENDPOINTS = (
    get_organization_limits,
    get_organization_counters,
    put_organization_limits,
    delete_organization_limits,
    get_project_limits,
    get_project_counters,
    put_project_limits,
    delete_project_limits,
    get_key_limits,
    get_key_counters,
    put_key_limits,
    delete_key_limits,
)
