"""Settings of what is promised: service level objectives by tier and length class. Where the defaults come from stands
in docs/concepts/slo.md.

The router has figures of its own (`router.slos`): it decides by those when a request is placed. These here decide
nothing; they say afterwards what was kept.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.length_class import LengthClass

Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=3_600_000)]


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What requests of one tier and one length are promised. A request is good when it keeps every figure here."""

    tier: Tier
    """`chat` or `autocomplete`."""
    length: LengthClass
    """By the prompt: `short` (fewer than 4,096 tokens), `medium` (fewer than 16,384) or `long`."""
    ttft_ms: Milliseconds
    """Time to first token: from the request's arrival until its first generated text left the gateway."""
    tpot_ms: Milliseconds | None = None
    """Mean time of a token behind the first one; unset: none is promised."""
    itl_max_ms: Milliseconds | None = None
    """Longest gap between two arrivals of the engine's tokens; unset: none is promised."""
    target: Annotated[float, msgspec.Meta(ge=0.5, le=0.9999)] = 0.99
    """Part of the requests that shall be good; the rest is the error budget."""


OBJECTIVES = (
    Objective(Tier.CHAT, LengthClass.SHORT, 700.0, 40.0),
    Objective(Tier.CHAT, LengthClass.MEDIUM, 2_000.0, 40.0),
    Objective(Tier.CHAT, LengthClass.LONG, 2_000.0, 40.0, target=0.95),
    Objective(Tier.AUTOCOMPLETE, LengthClass.SHORT, 200.0, 25.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.MEDIUM, 200.0, 25.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.LONG, 200.0, 25.0),
)


class SloConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objectives, and how long is remembered what was kept of them."""

    objectives: Annotated[tuple[Objective, ...], msgspec.Meta(min_length=1)] = OBJECTIVES
    """One for each tier and length that is promised something; requests of others are in no budget. Workers write them
    into the database when they start, as a new version if they differ: minutes that are over stay judged as they
    were."""
    retention_days: Annotated[int, msgspec.Meta(ge=29, le=36_500)] = 92
    """How long minutes are kept; error budgets need the last 28 days."""

    def check(self) -> None:
        """Raise ConfigError for a tier and length that is promised two things."""
        seen: set[tuple[Tier, LengthClass]] = set()
        for each in self.objectives:
            if (each.tier, each.length) in seen:
                raise ConfigError(
                    f"slo.objectives: there are two for tier {each.tier.value!r} and length {each.length.value!r}; "
                    "keep one",
                    param="slo.objectives",
                )
            seen.add((each.tier, each.length))
