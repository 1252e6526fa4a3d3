"""Defines the record of a key that was looked up."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from contracts.adapter import Adapter
from contracts.desired_state import Model
from contracts.errors import ModelForbidden, ScopeMissing
from contracts.generation import Caller, Tier
from contracts.service_class import ServiceClass
from contracts.usage import Purpose
from gateway.auth.scopes import Scope
from gateway.limits.levels import Levels
from gateway.limits.priorities import Priorities

NO_RATES: dict[str, None] = dict.fromkeys((
    "requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", "tokens_per_minute",
    "max_concurrency", "tokens_per_day",
))  # fmt: skip
"""Rate limits, unset."""


class KeyRecord(msgspec.Struct, frozen=True):
    """A key that was issued and not revoked, of a project that is not disabled. Each use checks `expires_at`."""

    caller: Caller
    levels: Levels
    """Rules that limit its requests."""
    expires_at: float | None = None
    """Epoch seconds; None for never. For the secret before a rotation, the end of the overlap if that comes first."""
    scopes: frozenset[Scope] | None = None
    """Scopes that it has; None for all but `evals`."""
    models: frozenset[str] | None = None
    """Names, not aliases, of the models that its project may use; None for all."""
    tiers: frozenset[Tier] | None = None
    """The tiers that its project may use; None for both."""
    internal: bool = False
    """Whether its organization is the deployment's own."""
    store_prompts: bool = False
    """Whether its organization stores prompts and responses at gaps, and where its prompts differ."""
    allow_reviews: bool = False
    """Whether its project lets reviewers of the operating organization read its prompts and responses."""
    adapters: tuple[Adapter, ...] = ()
    """Adapters of its project, then of its organization. Of two with one name, the first counts."""
    priorities: Priorities = Priorities()
    """The class and the share of its requests."""
    line: bool = False
    """Whether the worker sends its request and bills the result. See `for_lines` and `for_background`."""
    background: bool = False
    """Whether the worker sends its request for a background response."""

    @property
    def purpose(self) -> Purpose | None:
        """The deployment's purpose for this key; None for a customer's key."""
        marked = self.internal and self.scopes is not None and Scope.EVALS in self.scopes
        return Purpose.EVALS if marked else None

    def for_lines(self) -> KeyRecord:
        """The record for lines of its batches. They run in the class `offline`, and only budgets count them, so that a
        batch never uses up the rate of live requests."""
        rules = (
            msgspec.structs.replace(rule, limits=msgspec.structs.replace(rule.limits, **NO_RATES))
            for rule in self.levels.rules
        )
        tiers = {
            tier: msgspec.structs.replace(self.priorities.for_tier(tier), service_class=ServiceClass.OFFLINE)
            for tier in (Tier.AUTOCOMPLETE, Tier.CHAT)
        }
        priorities = Priorities(tiers[Tier.AUTOCOMPLETE], tiers[Tier.CHAT])
        levels = Levels.of(self.levels.organization_id, rules)
        return msgspec.structs.replace(self, line=True, levels=levels, priorities=priorities)

    def for_background(self) -> KeyRecord:
        """The record for its background responses, which have the key's own class and limits."""
        return msgspec.structs.replace(self, line=True, background=True)

    def require_scope(self, scope: Scope) -> None:
        """Raises ScopeMissing."""
        if self.scopes is not None and scope not in self.scopes:
            named = ", ".join(sorted(self.scopes)) or "none"
            error = ScopeMissing(f"This API key lacks the scope '{scope.value}'; it has: {named}.")
            error.caller = self.caller
            raise error

    def may_use(self, model: Model) -> bool:
        """Whether the project has access to the model and its tier."""
        return (self.models is None or model.name in self.models) and (self.tiers is None or model.tier in self.tiers)

    def require_model(self, model: Model, asked: str, models: Iterable[Model]) -> None:
        """Raises ModelForbidden, which names the missing access, and the `models` that may be used instead.

        asked: the name in the request. A caller who may not use an alias does not learn its target.
        """
        if self.may_use(model):
            return
        missing = f"model '{asked}'"
        if self.models is None or model.name in self.models:
            missing = f"tier '{model.tier.value}', which model '{asked}' belongs to"
        usable = ", ".join(other.name for other in models if self.may_use(other)) or "none"
        raise ModelForbidden(
            f"Project {self.caller.project_id} does not have access to {missing}. It may use: {usable}.", param="model"
        )


class Reason(StrEnum):
    """Reason why a key has no record."""

    UNKNOWN = "unknown"
    REVOKED = "revoked"
    PROJECT_DISABLED = "project_disabled"
    ORGANIZATION_DISABLED = "organization_disabled"


class Refusal(msgspec.Struct, frozen=True):
    """A key without access. caller: its present or former owner; None if it was never issued."""

    reason: Reason
    caller: Caller | None = None


Answer = KeyRecord | Refusal | None
"""The answer for a key; None if the database was unreachable."""

PROJECT, ORGANIZATION = "project:", "organization:"
TENANTS = (PROJECT, ORGANIZATION)
"""Prefixes of an announcement that concerns all keys of a tenant (migrations: gateway.notify_keys_of)."""


def tenants_of(answer: KeyRecord | Refusal) -> tuple[str, ...]:
    """The key's tenants, as announcements name them; empty for a key that was never issued."""
    caller = answer.caller
    return () if caller is None else (PROJECT + caller.project_id, ORGANIZATION + caller.organization_id)
