"""Service level objectives by tier and prompt length, which the gateway measures and `control.diagnosis` applies.
docs/concepts/slo.md derives the defaults."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.generation import Tier
from contracts.length_class import LengthClass

Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=3_600_000)]


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The objectives for requests of one tier and one length. A request is good when it meets every figure here."""

    tier: Tier
    """`chat` or `autocomplete`."""
    length: LengthClass
    """By the prompt: `short` (fewer than 4,096 tokens), `medium` (fewer than 16,384) or `long`."""
    ttft_ms: Milliseconds
    """Time to first token: from the request's arrival until its first generated text left the gateway."""
    tpot_ms: Milliseconds | None = None
    """Mean time per token after the first; unset: no objective."""
    itl_max_ms: Milliseconds | None = None
    """Longest gap between two arrivals of the engine's tokens; unset: no objective."""
    target: Annotated[float, msgspec.Meta(ge=0.5, le=0.9999)] = 0.99
    """Share of the requests that must be good; the rest is the error budget."""


OBJECTIVES = (
    Objective(Tier.CHAT, LengthClass.SHORT, 700.0, 40.0),
    Objective(Tier.CHAT, LengthClass.MEDIUM, 2_000.0, 40.0),
    Objective(Tier.CHAT, LengthClass.LONG, 2_000.0, 40.0, target=0.95),
    Objective(Tier.AUTOCOMPLETE, LengthClass.SHORT, 200.0, 25.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.MEDIUM, 200.0, 25.0),
    Objective(Tier.AUTOCOMPLETE, LengthClass.LONG, 200.0, 25.0),
)
