"""Defines the rules that limit an organization, a project and a key, each for all tiers or for one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec

from contracts.errors import PROMPT_CAP
from contracts.generation import Tier

MAX_PER_MINUTE = 1_000_000_000
"""Above this, the limiter's arithmetic would exceed the integers that a double represents exactly (see state.lua)."""
MAX_PER_DAY = 1_000_000_000_000
MAX_MICRO = 90_000_000_000_000
"""A double represents a hundred times this exactly, so that percentages of a budget are compared exactly."""

PerMinute = Annotated[int, msgspec.Meta(ge=1, le=MAX_PER_MINUTE)]
PerDay = Annotated[int, msgspec.Meta(ge=1, le=MAX_PER_DAY)]
Micro = Annotated[int, msgspec.Meta(ge=0, le=MAX_MICRO)]


class Level(StrEnum):
    """Level of a rule in the hierarchy."""

    ORGANIZATION = "organization"
    PROJECT = "project"
    KEY = "key"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one rule. None: not limited. To block a key, revoke it; a limit of 0 does not exist."""

    requests_per_minute: PerMinute | None = None
    input_tokens_per_minute: PerMinute | None = None
    """Prompt tokens, cached ones included."""
    output_tokens_per_minute: PerMinute | None = None
    """While a request runs, its largest possible output counts."""
    tokens_per_minute: PerMinute | None = None
    """Prompt and output together."""
    max_concurrency: PerMinute | None = None
    """Requests that run at the same time, over all gateways."""
    tokens_per_day: PerDay | None = None
    """Prompt and output together in a calendar day, UTC."""
    money_micro_per_month: Micro | None = None
    """Millionths of the deployment's currency in a calendar month, UTC. 0: only what costs nothing."""
    max_prompt_tokens: PerMinute | None = None
    """Tokens of one request's prompt, cached ones included. Nothing is counted for it: a longer prompt is refused."""

    def __bool__(self) -> bool:
        """Whether any limit is set."""
        return any(getattr(self, name) is not None for name in self.__struct_fields__)

    @property
    def counted(self) -> bool:
        """Whether any limit needs a counter."""
        return any(getattr(self, name) is not None for name in self.__struct_fields__ if name != PROMPT_CAP)


class Rule(msgspec.Struct, frozen=True):
    """One row of the table `limits`. tier: None for all tiers together. created_ms: when the row was created or got its
    budget, epoch milliseconds: a budget that was lifted and set again has not counted what was spent meanwhile."""

    level: Level
    subject_id: str
    tier: Tier | None
    limits: Limits
    created_ms: int = 0

    @property
    def name(self) -> str:
        """A stable name, unique within the organization, with which the key of its counters ends."""
        return f"{self.level.value}:{self.subject_id}:{self.tier.value if self.tier else '*'}"


class Levels(msgspec.Struct, frozen=True):
    """All limits of one key's requests, created by `of`. identity: equal if and only if the rules are equal, so that it
    can be the cache key of their results; empty without limits."""

    organization_id: str = ""
    rules: tuple[Rule, ...] = ()
    identity: str = ""
    capped: bool = False
    """Whether a rule bounds prompts."""

    @classmethod
    def of(cls, organization_id: str, rules: Iterable[Rule]) -> Levels:
        """Leaves out rules that limit nothing. The order is organization, project, key, with all tiers first."""
        order = list(Level)
        kept = sorted(
            (rule for rule in rules if rule.limits), key=lambda rule: (order.index(rule.level), rule.tier or "")
        )
        digest = hashlib.blake2b(msgspec.json.encode((organization_id, kept)), digest_size=16).hexdigest()
        capped = any(rule.limits.max_prompt_tokens is not None for rule in kept)
        return cls(organization_id, tuple(kept), digest if kept else "", capped)

    @property
    def has_money(self) -> bool:
        """Whether a rule is a budget."""
        return any(rule.limits.money_micro_per_month is not None for rule in self.rules)

    def cap(self, tier: Tier) -> tuple[int, Rule] | None:
        """The tier's lowest bound of a prompt, in tokens, and its rule; None without one."""
        found = [
            (rule.limits.max_prompt_tokens, rule)
            for rule in self.for_tier(tier)
            if rule.limits.max_prompt_tokens is not None
        ]
        return min(found, key=lambda each: each[0], default=None)

    def for_tier(self, tier: Tier) -> tuple[Rule, ...]:
        """The rules that count a request of this tier."""
        return tuple(rule for rule in self.rules if rule.tier is None or rule.tier is tier)
