"""Settings of the totals of completions."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class CompletionUpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's upkeep of completions and of editors' reports about them."""

    roll_up_every_s: Fixed[Annotated[float, Meta(ge=1, le=3600)]] = 60.0
    """Interval between runs of the roll-up, and so the age of the totals of completions. Each run replaces whole hours.
    """
    retention_days: Annotated[int, Meta(ge=1, le=36_500)] = 92
    """Days for which totals of completions are kept; they are deleted by whole weeks. They take some 370 bytes,
    including indexes, for each hour, project, language, editor and model with completions."""
