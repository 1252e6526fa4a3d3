"""The scales of a judgment: a class's objectives, or a scale for growth if it has none."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective

FELT_GAP_MS = 200.0
"""Users notice gaps from about 100 ms; twice that breaks the flow."""


class Number(StrEnum):
    """The figure of an objective that a measure spends."""

    TTFT = "ttft_ms"
    TPOT = "tpot_ms"
    LONGEST_GAP = "itl_max_ms"


class Objectives:
    """Objectives by class."""

    def __init__(self, promised: Iterable[Objective] = ()) -> None:
        """promised: replace the whole default of their tier and length, so an omitted figure promises nothing."""
        self._defaults = {(each.tier, each.length): each for each in OBJECTIVES}
        self._by_class = {**self._defaults, **{(each.tier, each.length): each for each in promised}}

    @property
    def all(self) -> tuple[Objective, ...]:
        """One objective for each tier and length."""
        return tuple(self._by_class.values())

    def of(self, tier: Tier | None, length: LengthClass | None) -> Objective:
        """The objective of a class; None means the chat tier, or short prompts."""
        return self._by_class[tier or Tier.CHAT, length or LengthClass.SHORT]

    def promised_ms(self, tier: Tier | None, length: LengthClass | None, number: Number) -> float | None:
        """The promised figure; None if none is promised."""
        value: float | None = getattr(self.of(tier, length), number.value)
        return value

    def scale_ms(self, tier: Tier | None, length: LengthClass | None, number: Number) -> float:
        """The scale of growth: the promised figure, or else the default one."""
        default = self._defaults[tier or Tier.CHAT, length or LengthClass.SHORT]
        return self.promised_ms(tier, length, number) or getattr(default, number.value) or FELT_GAP_MS
