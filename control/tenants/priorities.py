"""Class and share of an organization, a project or a key, for all tiers or for one.

Only the operating organization sets an organization's own. Within this class, the organization's administrators choose
which of their requests yield, and they divide its share among their projects. See `gateway.limits.priorities`.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from contracts.errors import InvalidField
from contracts.generation import Tier
from contracts.service_class import ServiceClass, lowest
from control.api.call import AdminCall
from control.api.schemas import Body
from control.tenants import priority_store
from control.tenants.limits import changed_organization, organization_of, tier_named
from gateway.limits.levels import Level
from gateway.limits.priorities import PriorityRule, Share, resolved


class NewPriority(Body, frozen=True, kw_only=True):
    """A rule's class and share. service_class: `interactive` precedes `standard`; `offline` yields to both and is shed
    first. If it is omitted or null, the class of the level above applies. share: the weight among organizations or, for
    a project, among the projects of its organization; 100 if omitted or null. A key has no share."""

    service_class: ServiceClass | None = None
    share: Share | None = None


class Priority(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. tier: null for all tiers; a rule for a single tier takes precedence. Of several levels, the lowest
    class applies."""

    level: Level
    subject_id: UUID
    tier: Tier | None
    service_class: ServiceClass | None
    share: int | None


class PriorityRules(msgspec.Struct, frozen=True, kw_only=True):
    """All rules of a subject. The rule for all tiers comes first."""

    data: list[Priority]


async def get_priorities(call: AdminCall, level: Level, subject_id: UUID) -> PriorityRules:
    """Get the class and share of an organization, a project or a key."""
    await organization_of(call, level, subject_id)
    return await _rules(call, level, subject_id)


async def put_priorities(
    call: AdminCall, level: Level, subject_id: UUID, tier_name: str, body: NewPriority
) -> Priority:
    """Set the class and share for one tier, or for `all` tiers.

    Only the operating organization can set an organization's own class and share.
    """
    organization_id = await changed_organization(call, level, subject_id)
    rule = PriorityRule(level, str(subject_id), tier_named(tier_name), body.service_class, body.share)
    if level is Level.KEY and rule.share is not None:
        raise InvalidField("share: a key has no share; set the share of its project or organization.", param="share")
    if level is not Level.ORGANIZATION:
        await _require_within(call, organization_id, rule)
    before = await _before(call, level, subject_id, rule.tier)
    await priority_store.put_rule(call.connection, rule)
    after = _shown(rule)
    call.audit("priorities.put", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def delete_priorities(call: AdminCall, level: Level, subject_id: UUID, tier_name: str) -> PriorityRules:
    """Remove the class and share for one tier, or those for `all` tiers. Returns the subject's other rules.

    Only the operating organization can remove an organization's own class and share.
    """
    organization_id = await changed_organization(call, level, subject_id)
    tier = tier_named(tier_name)
    before = await _before(call, level, subject_id, tier)
    await priority_store.delete_rule(call.connection, level, subject_id, tier)
    after = await _rules(call, level, subject_id)
    call.audit("priorities.delete", subject_id, organization_id=organization_id, before=before, after=after)
    return after


async def _require_within(call: AdminCall, organization_id: UUID, rule: PriorityRule) -> None:
    """Raises InvalidField for a class above its organization's, which would have no effect."""
    own = rule.service_class
    if own is None:
        return
    above = await priority_store.rules_of(call.connection, Level.ORGANIZATION, organization_id)
    tiers = Tier if rule.tier is None else (rule.tier,)
    allowed = {tier: resolved(above, tier).service_class for tier in tiers}
    beyond = [tier for tier in tiers if lowest((own, allowed[tier])) is not own]
    if beyond:
        has = " and ".join(f"in the tier {tier}, '{allowed[tier]}'" for tier in beyond)
        raise InvalidField(
            f"service_class: '{own}' is above the class of the organization {has}. Give that or a lower one; the "
            "deployment's operator can raise the organization's "
            f"(`slipstream customers limits set --organization NAME --class {own}`).",
            param="service_class",
        )


async def _rules(call: AdminCall, level: Level, subject_id: UUID) -> PriorityRules:
    rules = await priority_store.rules_of(call.connection, level, subject_id)
    return PriorityRules(data=[_shown(rule) for rule in rules])


async def _before(call: AdminCall, level: Level, subject_id: UUID, tier: Tier | None) -> Priority | None:
    rules = await priority_store.rules_of(call.connection, level, subject_id)
    return next((_shown(rule) for rule in rules if rule.tier is tier), None)


def _shown(rule: PriorityRule) -> Priority:
    return Priority(
        level=rule.level,
        subject_id=UUID(rule.subject_id),
        tier=rule.tier,
        service_class=rule.service_class,
        share=rule.share,
    )
