"""Limits of an organization, a project or a key, for one tier or for all tiers together, and their counters.

Only the operating organization sets an organization's own limits. Its administrators divide them among projects and
keys.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from contracts.errors import NotFound
from contracts.generation import Tier
from control.api.call import AdminCall
from control.tenants import limit_store
from gateway.limits.counter_snapshot import CounterSnapshot
from gateway.limits.levels import Level, Limits, Rule

ALL_TIERS = "all"


class NewLimits(Limits, frozen=True):
    """The limits of one rule. An omitted or null field sets no limit. Money is in millionths of the deployment's
    currency; days and months are in UTC."""


class LimitRule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. tier: null for all tiers together. A request must keep every rule that applies to it."""

    level: Level
    subject_id: UUID
    tier: Tier | None
    limits: Limits


class LimitRules(msgspec.Struct, frozen=True, kw_only=True):
    """All rules of a subject. The rule for all tiers comes first."""

    data: list[LimitRule]


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of each limited counter of a subject, including running requests.

    money_counted: false while the spending of a budget is still being counted; until then, `remaining` is too high and
    `used` too low.
    """

    data: list[CounterSnapshot]
    money_counted: bool


async def get_limits(call: AdminCall, level: Level, subject_id: UUID) -> LimitRules:
    """Get the limits of an organization, a project or a key."""
    await organization_of(call, level, subject_id)
    return await _rules(call, level, subject_id)


async def get_counters(call: AdminCall, level: Level, subject_id: UUID) -> Counters:
    """Get the counters of an organization's, a project's or a key's limits."""
    organization_id = await organization_of(call, level, subject_id)
    rules = await limit_store.rules_of(call.connection, level, subject_id)
    if not rules:
        return Counters(data=[], money_counted=True)
    standings, counted = await call.counters.standing(str(organization_id), rules)
    return Counters(data=standings, money_counted=counted)


async def put_limits(call: AdminCall, level: Level, subject_id: UUID, tier_name: str, body: NewLimits) -> LimitRule:
    """Set the limits for one tier, or for `all` tiers together.

    Only the operating organization can set an organization's own limits.
    """
    organization_id = await changed_organization(call, level, subject_id)
    tier = tier_named(tier_name)
    before = await _before(call, level, subject_id, tier)
    limits = Limits(*msgspec.structs.astuple(body))
    after = _shown(await limit_store.put_rule(call.connection, level, subject_id, tier, limits))
    call.audit("limits.put", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def delete_limits(call: AdminCall, level: Level, subject_id: UUID, tier_name: str) -> LimitRules:
    """Remove the limits for one tier, or those for `all` tiers together. Returns the subject's other limits.

    Only the operating organization can remove an organization's own limits.
    """
    organization_id = await changed_organization(call, level, subject_id)
    tier = tier_named(tier_name)
    before = await _before(call, level, subject_id, tier)
    await limit_store.delete_rule(call.connection, level, subject_id, tier)
    after = await _rules(call, level, subject_id)
    call.audit("limits.delete", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def organization_of(call: AdminCall, level: Level, subject_id: UUID) -> UUID:
    """The organization of a subject. Raises NotFound, also for another organization's subject."""
    match level:
        case Level.ORGANIZATION:
            return await call.require_organization(subject_id)
        case Level.PROJECT:
            return await call.organization_of_project(subject_id)
        case Level.KEY:
            return await call.organization_of_key(subject_id)


async def changed_organization(call: AdminCall, level: Level, subject_id: UUID) -> UUID:
    """Like `organization_of`, for a change. Other changes of the organization's rules wait until the transaction ends:
    each audit row then has the rule that was replaced. Raises PermissionDenied if a tenant would change an
    organization's own rules."""
    call.principal.require(None, operator_only=level is Level.ORGANIZATION)
    organization_id = await organization_of(call, level, subject_id)
    await call.lock_organization(organization_id)
    return organization_id


async def _rules(call: AdminCall, level: Level, subject_id: UUID) -> LimitRules:
    rules = await limit_store.rules_of(call.connection, level, subject_id)
    return LimitRules(data=[_shown(rule) for rule in rules])


async def _before(call: AdminCall, level: Level, subject_id: UUID, tier: Tier | None) -> LimitRule | None:
    rules = await limit_store.rules_of(call.connection, level, subject_id)
    return next((_shown(rule) for rule in rules if rule.tier is tier), None)


def tier_named(name: str) -> Tier | None:
    """The tier of a path; None for all. Raises NotFound."""
    if name == ALL_TIERS:
        return None
    try:
        return Tier(name)
    except ValueError:
        names = ", ".join((ALL_TIERS, *Tier))
        raise NotFound(f"There is no tier {name!r}; tiers: {names}.") from None


def _shown(rule: Rule) -> LimitRule:
    return LimitRule(level=rule.level, subject_id=UUID(rule.subject_id), tier=rule.tier, limits=rule.limits)
