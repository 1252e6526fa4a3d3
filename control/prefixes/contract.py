"""Decides from a tenant's sums whether its reusable share has dropped, and where most was lost. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from control.prefixes.upkeep_config import PrefixUpkeepConfig

MIN_HOURS = 3
"""Fewer hours with enough requests do not define the usual share."""


class Totals(msgspec.Struct, frozen=True):
    """Sums over some requests."""

    requests: int
    prompt_tokens: int
    reusable_tokens: int

    @property
    def share(self) -> float:
        """The reusable part of the prompt tokens; 0 without tokens."""
        return self.reusable_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class Place(NamedTuple):
    """Common key of requests that lost reuse. part: empty if the cause has none."""

    template: str
    model: str
    cause: str
    part: str


class Standing(StrEnum):
    """A tenant's current share, compared with its usual one."""

    UNKNOWN = "unknown"
    """Too few requests, now or before."""
    USUAL = "usual"
    DROPPED = "dropped"
    STILL_DROPPED = "still_dropped"
    RECOVERED = "recovered"


class OpenDrop(msgspec.Struct, frozen=True):
    """A reported drop that has not ended. age_s: since it began."""

    usual_share: float
    age_s: float


def usual_share(hours: Sequence[Totals], least_requests: int) -> float | None:
    """The median share of the hours with enough requests; None if these are too few."""
    shares = [hour.share for hour in hours if hour.requests >= least_requests]
    return statistics.median(shares) if len(shares) >= MIN_HOURS else None


def standing(now: Totals, usual: float | None, drop: OpenDrop | None, config: PrefixUpkeepConfig) -> Standing:
    """Compare the latest hours (now) with the usual share. drop: None without an open one. A drop that is as old as the
    reference period has become usual, and ends."""
    if drop is not None:
        over = now.requests >= config.least_requests and now.share >= config.recovered_to * drop.usual_share
        over = over or drop.age_s >= config.usual_hours * 3_600
        return Standing.RECOVERED if over else Standing.STILL_DROPPED
    if now.requests < config.least_requests or not usual:
        return Standing.UNKNOWN
    return Standing.DROPPED if now.share <= config.dropped_to * usual else Standing.USUAL


def culprit(before: Mapping[Place, Totals], after: Mapping[Place, Totals]) -> Place | None:
    """The key whose lost part of all prompt tokens has grown most; None if none has grown."""
    had, have = _lost_parts(before), _lost_parts(after)
    grown = {place: part - had.get(place, 0.0) for place, part in have.items()}
    worst = max(grown, key=lambda place: (grown[place], place), default=None)
    return worst if worst is not None and grown[worst] > 0 else None


def _lost_parts(totals: Mapping[Place, Totals]) -> dict[Place, float]:
    tokens = sum(each.prompt_tokens for each in totals.values())
    return {place: (each.prompt_tokens - each.reusable_tokens) / tokens for place, each in totals.items() if tokens}
