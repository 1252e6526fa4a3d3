"""Settings of service level objectives by tier and length class.

The router's own figures (`router.slos`) decide placement. These objectives only judge requests afterwards.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective


class SloConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objectives, and how long is remembered what was kept of them."""

    objectives: Annotated[tuple[Objective, ...], msgspec.Meta(min_length=1)] = OBJECTIVES
    """One for each tier and length that is promised something; requests of others are in no budget. Workers write them
    into the database when they start, as a new version if they differ: minutes that are over stay judged as they
    were."""
    retention_days: Annotated[int, msgspec.Meta(ge=29, le=36_500)] = 92
    """How long minutes are kept; error budgets need the last 28 days."""
    roll_up_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 20.0
    """Seconds between two times that minutes with news are added up: how old error budgets and goodput may be."""

    def check(self) -> None:
        """Raise ConfigError for a tier and length with two objectives."""
        seen: set[tuple[Tier, LengthClass]] = set()
        for each in self.objectives:
            if (each.tier, each.length) in seen:
                raise ConfigError(
                    f"slo.objectives: there are two for tier {each.tier.value!r} and length {each.length.value!r}; "
                    "keep one",
                    param="slo.objectives",
                )
            seen.add((each.tier, each.length))
