"""The record of a key that was looked up."""

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
"""Limits of rates, unset."""


class KeyRecord(msgspec.Struct, frozen=True):
    """A key that was issued and not revoked, of a project that is not disabled. It may be past `expires_at`: that is
    checked on every use."""

    caller: Caller
    levels: Levels
    """Rules that limit its requests."""
    expires_at: float | None = None
    """Epoch seconds; None: never. For the secret before a rotation, the end of the overlap if that comes first."""
    scopes: frozenset[Scope] | None = None
    """Scopes that it opens; None: all."""
    models: frozenset[str] | None = None
    """The models its project may use, by name and not by alias; None: all."""
    tiers: frozenset[Tier] | None = None
    """The tiers its project may use; None: both."""
    internal: bool = False
    """Its organization is the deployment's own."""
    store_prompts: bool = False
    """Its organization stores prompts and responses at gaps, and where its prompts differ."""
    allow_reviews: bool = False
    """Its project lets reviewers of the operating organization read its prompts and responses."""
    adapters: tuple[Adapter, ...] = ()
    """Adapters of its project, then of its organization: the first of two with one name counts."""
    priorities: Priorities = Priorities()
    """The class and the share of its requests."""
    line: bool = False
    """The worker sends its request, and bills the result. See `for_lines` and `for_background`."""
    background: bool = False
    """The worker sends its request for a response in the background."""

    @property
    def purpose(self) -> Purpose | None:
        """The deployment's purpose for this key; None: a customer's key."""
        marked = self.internal and self.scopes is not None and Scope.EVALS in self.scopes
        return Purpose.EVALS if marked else None

    def for_lines(self) -> KeyRecord:
        """The record for lines of its batches: they run in the class `offline`, and no limit of a rate counts them, so
        that a batch never takes the rate of live requests. Budgets do."""
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
        """The record for its responses in the background: they have the key's own class and limits."""
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
        """Raises ModelForbidden, which names what is missing, and those of `models` that may be used instead.

        asked: the name in the request; a caller who may not use an alias does not learn its target.
        """
        if self.may_use(model):
            return
        what = f"model '{asked}'"
        if self.models is None or model.name in self.models:
            what = f"tier '{model.tier.value}', which model '{asked}' belongs to"
        usable = ", ".join(other.name for other in models if self.may_use(other)) or "none"
        raise ModelForbidden(
            f"Project {self.caller.project_id} does not have access to {what}. It may use: {usable}.", param="model"
        )


class Reason(StrEnum):
    """Reason for which the database has no record."""

    UNKNOWN = "unknown"
    REVOKED = "revoked"
    PROJECT_DISABLED = "project_disabled"
    ORGANIZATION_DISABLED = "organization_disabled"


class Refusal(msgspec.Struct, frozen=True):
    """A key that opens nothing. caller: its owner, now or formerly; None when it was never issued."""

    reason: Reason
    caller: Caller | None = None


Answer = KeyRecord | Refusal | None
"""The answer for a key; None: the database was unreachable."""

PROJECT, ORGANIZATION = "project:", "organization:"
TENANTS = (PROJECT, ORGANIZATION)
"""Prefixes of an announcement that concerns all keys of a tenant (migrations: gateway.notify_keys_of)."""


def tenants_of(answer: KeyRecord | Refusal) -> tuple[str, ...]:
    """The key's tenants, as announcements name them; empty for a key that was never issued."""
    caller = answer.caller
    return () if caller is None else (PROJECT + caller.project_id, ORGANIZATION + caller.organization_id)
