"""Describes a request's counters as plain data, on which both the Lua script and its local counterpart decide."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from operator import attrgetter

import msgspec

from contracts.generation import Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule

MINUTE_MS = 60_000
DAY_MS = 86_400_000
NO_LIMIT = -1


class Counter(StrEnum):
    """A counter, with its name in errors, metrics and the table's columns. The order is that of the Lua scripts."""

    REQUESTS = "requests_per_minute"
    INPUT_TOKENS = "input_tokens_per_minute"
    OUTPUT_TOKENS = "output_tokens_per_minute"
    TOKENS = "tokens_per_minute"
    CONCURRENCY = "max_concurrency"
    DAY_TOKENS = "tokens_per_day"
    MONEY = "money_micro_per_month"


COUNTERS = tuple(Counter)
CONCURRENCY, DAY_TOKENS, MONEY = 4, 5, 6
"""Positions in COUNTERS."""
PER_MINUTE = {counter.value: position for position, counter in enumerate(COUNTERS[:CONCURRENCY])}
"""Position of each counter per minute in COUNTERS."""
_limits_in_order = attrgetter(*(counter.value for counter in COUNTERS))


class PlannedRule(msgspec.Struct, frozen=True):
    """One rule in the form that is counted. key: of its state in Valkey. limits: in COUNTERS' order, NO_LIMIT for
    none. created_ms: see `Rule`."""

    level: Level
    subject_id: str
    tier: Tier | None
    name: str
    key: str
    limits: tuple[int, ...]
    created_ms: int = 0


class Plan(msgspec.Struct, frozen=True):
    """All rules that count one key's requests of one tier. prefix: the beginning of every key of the organization."""

    organization_id: str
    prefix: str
    rules: tuple[PlannedRule, ...]

    @property
    def money_rules(self) -> tuple[PlannedRule, ...]:
        """The plan's rules that limit money."""
        return tuple(rule for rule in self.rules if rule.limits[MONEY] != NO_LIMIT)

    def too_expensive(self, cost: Cost) -> tuple[PlannedRule, int] | None:
        """The rule that this request could never pass, and the position of its counter; None if there is none."""
        amounts = amounts_of(1, cost)
        for rule in self.rules:
            for position, limit in enumerate(rule.limits):
                if amounts[position] > limit != NO_LIMIT:
                    return rule, position
        return None


class Status(IntEnum):
    """The answer to a reserve; the numbers are reserve.lua's."""

    ADMITTED = 0
    REFUSED = 1
    SETTLED = 3
    """The id was settled or undone before, so nothing was taken."""
    UNSEEDED = 4
    """A budget's spending is not known (yet), so nothing was taken."""


class Decision(msgspec.Struct, frozen=True):
    """The decision of a reserve.

    rule, counter: numbers from 1 of the refusing rule and counter, or 0. wait_ms: time until this request would pass if
    no other came. now_ms: the store's clock, epoch milliseconds. left: seven numbers for each rule, in the order of
    COUNTERS: units of 1/60000 for the first four, running requests for the fifth, tokens, micro; 0 without a limit.
    """

    status: Status
    rule: int
    counter: int
    wait_ms: int
    now_ms: int
    left: tuple[int, ...]


def used_of(position: int, limit: int, left: int) -> int:
    """The part of a limit that is used or held by running requests, in its own unit; more than the limit if it was
    passed or lowered. left: as in `Decision`."""
    if position < CONCURRENCY:
        return limit - left // MINUTE_MS
    return left if position == CONCURRENCY else limit - left


def prefix_of(prefix: str, organization_id: str) -> str:
    """The beginning of every key of an organization. Redis Cluster's braces keep an organization on one node."""
    return f"{prefix}:{{{organization_id}}}:"


def plan_of(prefix: str, levels: Levels, tier: Tier, *, share: int = 1, money_percent: int = 100) -> Plan | None:
    """The plan of one key's requests of one tier; None if nothing limits them.

    share: divides each limit, to 1 at least. Of money, `money_percent` is divided, and may become 0.
    """
    rules = [rule for rule in levels.for_tier(tier) if rule.limits.counted]
    if not rules:
        return None
    tagged = prefix_of(prefix, levels.organization_id)
    return Plan(levels.organization_id, tagged, tuple(planned(tagged, rule, share, money_percent) for rule in rules))


def planned(tagged: str, rule: Rule, share: int = 1, money_percent: int = 100) -> PlannedRule:
    """One rule in the form that is counted; tagged: the organization's prefix."""
    limits = _shared(rule.limits, share, money_percent)
    return PlannedRule(rule.level, rule.subject_id, rule.tier, rule.name, tagged + rule.name, limits, rule.created_ms)


def amounts_of(requests: int, cost: Cost) -> tuple[int, ...]:
    """The amount that a request of this cost takes from each counter."""
    tokens = cost.input_tokens + cost.output_tokens
    return requests, cost.input_tokens, cost.output_tokens, tokens, requests, tokens, cost.micro


def _shared(limits: Limits, share: int, money_percent: int) -> tuple[int, ...]:
    whole = [NO_LIMIT if limit is None else limit for limit in _limits_in_order(limits)]
    divided = [limit if limit == NO_LIMIT else max(1, limit // share) for limit in whole[:-1]]
    money = whole[MONEY] if whole[MONEY] == NO_LIMIT else whole[MONEY] * money_percent // 100 // share
    return (*divided, money)
