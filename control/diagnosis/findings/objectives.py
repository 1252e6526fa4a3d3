"""By what a request is judged: what its class is promised, and what an excess is measured by where nothing is."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective

FELT_GAP_MS = 200.0
"""A gap is felt from some 100 ms on, and twice that breaks the flow."""


class Number(StrEnum):
    """Which of an objective's figures a measure spends."""

    TTFT = "ttft_ms"
    TPOT = "tpot_ms"
    LONGEST_GAP = "itl_max_ms"


class Objectives:
    """Looked up by class."""

    def __init__(self, promised: Iterable[Objective] = ()) -> None:
        """promised: in place of the defaults of their tier and length, whole: a figure that one leaves out is none."""
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
        """None: nothing is."""
        value: float | None = getattr(self.of(tier, length), number.value)
        return value

    def scale_ms(self, tier: Tier | None, length: LengthClass | None, number: Number) -> float:
        """What growth is measured by: the promise, or where there is none what is usually promised."""
        usual = self._usual[tier or Tier.CHAT, length or LengthClass.SHORT]
        return self.promised_ms(tier, length, number) or getattr(usual, number.value) or FELT_GAP_MS
