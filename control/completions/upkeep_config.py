"""Settings of the totals of completions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class CompletionUpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's upkeep of completions and of editors' reports about them."""

    roll_up_every_s: Fixed[Annotated[float, Meta(ge=1, le=3600)]] = 60.0
    """Seconds between runs of the roll-up: how old the totals of completions may be. Each run replaces whole hours."""
    retention_days: Annotated[int, Meta(ge=1, le=36_500)] = 92
    """How long totals of completions are kept; they are deleted a whole week at a time: some 370 bytes for each hour,
    project, language, editor and model that had any, the indices with it."""
