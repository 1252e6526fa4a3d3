"""Limits of an organization, a project or a key, for all tiers together or for one, and their counters.

Only the operating organization sets an organization's own limits; its administrators divide them.
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
    """What the rule allows from now on; what is left out or null is not limited. Money is in millionths of the
    deployment's currency, days and months are UTC's."""


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

    money_counted: false while what a budget has spent is being counted; `remaining` is then too high and `used` too
    low.
    """

    data: list[CounterSnapshot]
    money_counted: bool


async def get_limits(call: AdminCall, level: Level, subject_id: UUID) -> LimitRules:
    """The limits of an organization, a project or a key."""
    await organization_of(call, level, subject_id)
    return await _rules(call, level, subject_id)


async def get_counters(call: AdminCall, level: Level, subject_id: UUID) -> Counters:
    """The rest of the limits of an organization, a project or a key."""
    organization_id = await organization_of(call, level, subject_id)
    rules = await limit_store.rules_of(call.connection, level, subject_id)
    if not rules:
        return Counters(data=[], money_counted=True)
    standings, counted = await call.counters.standing(str(organization_id), rules)
    return Counters(data=standings, money_counted=counted)


async def put_limits(call: AdminCall, level: Level, subject_id: UUID, tier_name: str, body: NewLimits) -> LimitRule:
    """Set limits for a tier, or for `all` together.

    Only the operating organization sets an organization's own.
    """
    organization_id = await changed_organization(call, level, subject_id)
    tier = tier_named(tier_name)
    before = await _before(call, level, subject_id, tier)
    limits = Limits(*msgspec.structs.astuple(body))
    after = _shown(await limit_store.put_rule(call.connection, level, subject_id, tier, limits))
    call.audit("limits.put", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def delete_limits(call: AdminCall, level: Level, subject_id: UUID, tier_name: str) -> LimitRules:
    """Lift limits for a tier, or those for `all` together. Answers the other limits of the subject.

    Only the operating organization lifts an organization's own.
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
        raise NotFound(f"There is no tier {name!r}; there are: {names}.") from None


def _shown(rule: Rule) -> LimitRule:
    return LimitRule(level=rule.level, subject_id=UUID(rule.subject_id), tier=rule.tier, limits=rule.limits)
