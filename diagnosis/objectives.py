"""What requests are promised, by tier and length of prompt: the two numbers, and the longest gap."""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from diagnosis.evidence import Length


class Objective(msgspec.Struct, frozen=True):
    """Milliseconds, of the tail."""

    tier: Tier
    length: Length
    ttft_ms: float
    tpot_ms: float
    longest_gap_ms: float


# TTFT of chats: what the router places by (router.slos). 40 ms a token is the pace of reading aloud twice over; a gap
# is felt from some 100 ms on, and twice that breaks the flow.
DEFAULTS = (
    Objective(Tier.CHAT, Length.SHORT, 700.0, 40.0, 200.0),
    Objective(Tier.CHAT, Length.MEDIUM, 2_000.0, 40.0, 200.0),
    Objective(Tier.CHAT, Length.LONG, 5_000.0, 40.0, 200.0),
    Objective(Tier.AUTOCOMPLETE, Length.SHORT, 200.0, 25.0, 200.0),
    Objective(Tier.AUTOCOMPLETE, Length.MEDIUM, 200.0, 25.0, 200.0),
    Objective(Tier.AUTOCOMPLETE, Length.LONG, 200.0, 25.0, 200.0),
)


class Objectives:
    """Looked up by class."""

    def __init__(self, objectives: tuple[Objective, ...] = DEFAULTS) -> None:
        """objectives: one for each tier and length. Raises ValueError where one is missing."""
        self._by_class = {(each.tier, each.length): each for each in objectives}
        missing = [f"{tier} {length}" for tier in Tier for length in Length if (tier, length) not in self._by_class]
        if missing:
            raise ValueError(f"no objective for {', '.join(missing)}")

    def of(self, tier: Tier | None, length: Length | None) -> Objective:
        """None: the chat tier; the shortest prompts."""
        return self._by_class[tier or Tier.CHAT, length or Length.SHORT]
