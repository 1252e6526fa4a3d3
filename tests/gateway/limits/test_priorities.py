"""Which class and share a key has: the rule on cases, and against a reference that reads it off the page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contracts.generation import BACKGROUND_PRIORITY, Tier
from contracts.service_class import ServiceClass, class_name, yields
from gateway.limits.levels import Level
from gateway.limits.priorities import Priorities, Priority, PriorityRule, resolved

OFFLINE, STANDARD, INTERACTIVE = ServiceClass


def rule(level: Level, service_class: ServiceClass | None = None, share: int | None = None, tier: Tier | None = None):  # type: ignore[no-untyped-def]
    return PriorityRule(level, "one", tier, service_class, share)


def test_where_nothing_is_said_a_key_is_standard_with_the_usual_shares() -> None:
    assert Priorities.of([]) == Priorities()
    assert Priorities().for_tier(Tier.CHAT) == Priority(STANDARD, 100, 100)


def plainly(rules: list[PriorityRule], tier: Tier) -> Priority:
    """The same, level by level."""
    said: dict[str, dict[Level, object]] = {"service_class": {}, "share": {}}
    for level in Level:
        for name, found in said.items():
            for wanted in (tier, None):
                values = [getattr(one, name) for one in rules if one.level is level and one.tier is wanted]
                if values and values[0] is not None:
                    found[level] = values[0]
                    break
    order = [OFFLINE, STANDARD, INTERACTIVE]
    classes = [said["service_class"].get(Level.ORGANIZATION, STANDARD)]
    classes += [said["service_class"].get(level, INTERACTIVE) for level in (Level.PROJECT, Level.KEY)]
    shares = [said["share"].get(level, 100) for level in (Level.ORGANIZATION, Level.PROJECT)]
    return Priority(min(classes, key=order.index), *shares)  # type: ignore[arg-type]


RULES = st.lists(
    st.builds(
        PriorityRule,
        level=st.sampled_from(Level),
        subject_id=st.just("one"),
        tier=st.sampled_from([None, *Tier]),
        service_class=st.sampled_from([None, *ServiceClass]),
        share=st.none() | st.integers(1, 10_000),
    ),
    unique_by=lambda one: (one.level, one.tier),
)


@given(rules=RULES, tier=st.sampled_from(Tier))
def test_any_rules_come_to_what_the_reference_reads(rules: list[PriorityRule], tier: Tier) -> None:
    assert resolved(rules, tier) == Priorities.of(rules).for_tier(tier) == plainly(rules, tier)


def test_only_offline_and_the_deployments_own_work_yield() -> None:
    assert [each for each in ServiceClass if yields(each.priority)] == [OFFLINE]
    assert yields(BACKGROUND_PRIORITY)
    assert [class_name(each.priority) for each in ServiceClass] == [each.value for each in ServiceClass]
    assert (class_name(BACKGROUND_PRIORITY), class_name(3)) == ("background", "3")
