"""Settings of the fleet's speculation governor, which decides when the engines of a pool draft tokens."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.errors import ConfigError


class Way(Enum):
    """The way in which an engine dialect governs drafts."""

    REQUEST = "request"
    """Each request states whether it may have drafts."""
    TABLE = "table"
    """The engine has its own table by batch size, set at its start."""
    VARIANTS = "variants"
    """Some replicas draft, and others do not."""


WAYS = {"embedded": Way.REQUEST, "sglang": Way.TABLE, "tensorrt_llm": Way.VARIANTS}
"""The way of each driver; other drivers have none."""


class SpeculationRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When the engines of a pool draft: at low load, where checking drafts is nearly free, and not at the peak, where
    it takes time from other streams."""

    governed: bool = False
    """Whether the load decides; if false, each engine drafts as it was started. Drivers: `embedded` (each request
    states whether it may have drafts), `sglang` (the table of adaptive speculation that `slipstream tools engines
    render` prints ends at `off_above_running`; nothing is sent) and `tensorrt_llm` (among replicas with and without
    `speculation`, the router prefers those that fit the load)."""
    off_above_running: Annotated[float, Meta(gt=0, le=1_000_000)] = 32.0
    """Mean number of running and waiting requests per usable replica, over a few seconds, above which drafting stops:
    the batch size from which drafts no longer pay off."""
    on_below_running: Annotated[float, Meta(gt=0, le=1_000_000)] = 16.0
    """Mean number of requests per usable replica below which drafting resumes. It must be less than
    `off_above_running`. Between the two, drafting stays as it is."""
    dwell_s: Annotated[float, Meta(ge=0, le=3_600)] = 30.0
    """Minimum time in seconds for which drafting stays on or off."""
    other_weight: Annotated[float, Meta(ge=0.01, le=1)] = 0.25
    """Factor for the placement weight of replicas of the other variant, which get fewer requests but are never idle
    while a request waits. Driver `tensorrt_llm` only."""

    def check(self, field: str, driver: str, role: str, variants: Sequence[bool]) -> None:
        """Raise ConfigError if the rule cannot work. field: its name. variants: `speculation` of each replica."""
        if self.on_below_running >= self.off_above_running:
            raise ConfigError(
                f"{field}.on_below_running: {self.on_below_running:g}; must be less than off_above_running "
                f"({self.off_above_running:g}): the gap keeps drafting from switching on and off",
                param=f"{field}.on_below_running",
            )
        if not self.governed:
            return
        way = WAYS.get(driver)
        if way is None:
            raise ConfigError(
                f"{field}.governed: driver {driver!r} offers no way to turn drafts on and off; drivers that do: "
                f"{', '.join(sorted(WAYS))}; set it to false",
                param=f"{field}.governed",
            )
        if role == "prefill":
            raise ConfigError(
                f"{field}.governed: a prefill pool generates no tokens and drafts none; govern its decode pool",
                param=f"{field}.governed",
            )
        if way is Way.VARIANTS and variants and len(set(variants)) == 1:
            every = "drafts" if variants[0] else "is without drafts"
            raise ConfigError(
                f"{field}.governed: every replica {every}, so there is no choice; start some with drafts and "
                "some without (`slipstream tools engines render --speculation both`), and set `speculation` of each",
                param=f"{field}.governed",
            )
