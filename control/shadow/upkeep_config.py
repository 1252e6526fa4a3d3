"""Settings of how long pairs of answers are kept."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed

Days = Annotated[int, Meta(ge=1, le=36_500)]


class ShadowUpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's retention of pairs."""

    pair_retention_days: Days = 90
    """Days for which the figures of pairs, and votes, are kept. A release's number of votes is kept until it ends."""
    text_retention_days: Fixed[Days] = 14
    """Days for which the texts of reviews are kept, at most as long as pairs."""
