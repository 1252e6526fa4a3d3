"""Determines the class and share of a key's requests from rules for its organization, its project and itself.

Within a level, the rule for a request's tier overrides the rule for all tiers, separately for class and share. The
class is the lowest of the levels; an organization without a rule is standard, and a project or key without a rule
lowers nothing. So the deployment's operator caps an organization, and the organization's administrators decide which of
its keys yield. Shares are separate: organizations share among each other, and so do the projects of an organization.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec

from contracts.generation import Tier
from contracts.service_class import ServiceClass, lowest
from gateway.limits.levels import Level

USUAL_SHARE = 100
MAX_SHARE = 10_000

Share = Annotated[int, msgspec.Meta(ge=1, le=MAX_SHARE)]


class PriorityRule(msgspec.Struct, frozen=True):
    """One row of the table `priorities`. tier: None for all tiers. A field that is None is left to other rules."""

    level: Level
    subject_id: str
    tier: Tier | None
    service_class: ServiceClass | None = None
    share: Share | None = None


class Priority(msgspec.Struct, frozen=True):
    """Class and shares of a key's requests in one tier. Shares are weights: 200 gets twice the tokens of 100."""

    service_class: ServiceClass = ServiceClass.STANDARD
    share: int = USUAL_SHARE
    """The organization's share among organizations."""
    project_share: int = USUAL_SHARE
    """The project's share among its organization's projects."""


class Priorities(msgspec.Struct, frozen=True):
    """Priorities of a key's requests by tier, created by `of`."""

    autocomplete: Priority = Priority()
    chat: Priority = Priority()

    @classmethod
    def of(cls, rules: Iterable[PriorityRule]) -> Priorities:
        """rules: the rules of a key, its project and its organization, at most one for each level and tier."""
        found = list(rules)
        if not found:
            return _USUAL
        return cls(*(resolved(found, tier) for tier in (Tier.AUTOCOMPLETE, Tier.CHAT)))

    def for_tier(self, tier: Tier) -> Priority:
        return self.chat if tier is Tier.CHAT else self.autocomplete


_USUAL = Priorities()


def resolved(rules: Iterable[PriorityRule], tier: Tier) -> Priority:
    """Apply the rules to one tier, as the module describes."""
    classes, shares = {Level.ORGANIZATION: ServiceClass.STANDARD}, {}
    # rules of the tier last: they override rules for all tiers
    for rule in sorted(rules, key=lambda rule: rule.tier is not None):
        if rule.tier not in (None, tier):
            continue
        if rule.service_class is not None:
            classes[rule.level] = rule.service_class
        if rule.share is not None:
            shares[rule.level] = rule.share
    return Priority(
        lowest(tuple(classes.values())),
        shares.get(Level.ORGANIZATION, USUAL_SHARE),
        shares.get(Level.PROJECT, USUAL_SHARE),
    )
