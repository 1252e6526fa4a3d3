"""What requests are promised, by tier and length of prompt: the two numbers, and the longest gap."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from contracts.generation import Tier
from contracts.length_class import LengthClass


class Objective(msgspec.Struct, frozen=True):
    """Milliseconds, of the tail."""

    tier: Tier
    length: LengthClass
    ttft_ms: float
    tpot_ms: float
    longest_gap_ms: float


# What is judged by where nothing is promised. 40 ms a token is faster than anybody reads; a gap is felt from some
# 100 ms on, and twice that breaks the flow.
DEFAULTS = (
    Objective(Tier.CHAT, LengthClass.SHORT, 700.0, 40.0, 200.0),
    Objective(Tier.CHAT, LengthClass.MEDIUM, 2_000.0, 40.0, 200.0),
    Objective(Tier.CHAT, LengthClass.LONG, 2_000.0, 40.0, 200.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.SHORT, 200.0, 25.0, 200.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.MEDIUM, 200.0, 25.0, 200.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.LONG, 200.0, 25.0, 200.0),
)


class Objectives:
    """Looked up by class."""

    def __init__(self, promised: Iterable[Objective] = ()) -> None:
        """promised: in place of the defaults of their tier and length."""
        self._by_class = {(each.tier, each.length): each for each in (*DEFAULTS, *promised)}

    def of(self, tier: Tier | None, length: LengthClass | None) -> Objective:
        """None: the chat tier; the shortest prompts."""
        return self._by_class[tier or Tier.CHAT, length or LengthClass.SHORT]
