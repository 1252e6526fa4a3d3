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
    """Objectives, and the retention of their results."""

    objectives: Annotated[tuple[Objective, ...], msgspec.Meta(min_length=1)] = OBJECTIVES
    """One objective for each promised tier and length. Requests of other tiers and lengths count for no budget. Workers
    write the objectives into the database when they start, as a new version if they differ. Past minutes keep their
    judgement."""
    retention_days: Annotated[int, msgspec.Meta(ge=29, le=36_500)] = 92
    """Days for which results by minute are kept. Error budgets need the last 28 days."""
    roll_up_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 20.0
    """Interval between two roll-ups of new minutes, and so the age of error budgets and goodput."""

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
