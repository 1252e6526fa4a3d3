"""Scales of a judgment: a class' objectives, and a scale for growth where there are none."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective

FELT_GAP_MS = 200.0
"""A gap is felt from some 100 ms on, and twice that breaks the flow."""


class Number(StrEnum):
    """The objective's figure that a measure spends."""

    TTFT = "ttft_ms"
    TPOT = "tpot_ms"
    LONGEST_GAP = "itl_max_ms"


class Objectives:
    """Looked up by class."""

    def __init__(self, promised: Iterable[Objective] = ()) -> None:
        """promised: replace the defaults of their tier and length as a whole: an omitted figure is none."""
        self._usual = {(each.tier, each.length): each for each in OBJECTIVES}
        self._by_class = {**self._usual, **{(each.tier, each.length): each for each in promised}}

    @property
    def all(self) -> tuple[Objective, ...]:
        """One for each tier and length."""
        return tuple(self._by_class.values())

    def of(self, tier: Tier | None, length: LengthClass | None) -> Objective:
        """None: the chat tier; the shortest prompts."""
        return self._by_class[tier or Tier.CHAT, length or LengthClass.SHORT]

    def promised_ms(self, tier: Tier | None, length: LengthClass | None, number: Number) -> float | None:
        """None: no objective."""
        value: float | None = getattr(self.of(tier, length), number.value)
        return value

    def scale_ms(self, tier: Tier | None, length: LengthClass | None, number: Number) -> float:
        """The scale of growth: the objective, or the usual one without any."""
        usual = self._usual[tier or Tier.CHAT, length or LengthClass.SHORT]
        return self.promised_ms(tier, length, number) or getattr(usual, number.value) or FELT_GAP_MS
