"""Settings of the sums of prefixes, and of the look for shares that have dropped."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed

Period = Annotated[float, Meta(ge=1, le=86_400)]
Days = Annotated[int, Meta(ge=1, le=36_500)]


class PrefixUpkeepConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's upkeep of the samples."""

    roll_up_every_s: Period = 300.0
    """Interval between two runs of the hourly sums. Each run then looks for shares that have dropped."""
    sample_retention_days: Days = 7
    """Days for which the sample of a single request is kept. It takes some 300 bytes, plus 8 for each 512 tokens of its
    prompt. `slipstream usage workload` reads the samples."""
    share_retention_days: Fixed[Days] = 400
    """Days for which the hourly sums and the drops are kept."""
    window_s: Annotated[float, Meta(ge=60, le=86_400)] = 900.0
    """Length of the most recent period, whose share is compared with the hours before."""
    usual_hours: Fixed[Annotated[int, Meta(ge=1, le=720)]] = 24
    """Number of previous hours that define the usual share."""
    least_requests: Fixed[Annotated[int, Meta(ge=1)]] = 50
    """Minimum number of requests, in the recent period or in an hour, for a comparison."""
    dropped_to: Fixed[Annotated[float, Meta(gt=0, lt=1)]] = 0.5
    """A share has dropped at this part of the usual one or less."""
    recovered_to: Fixed[Annotated[float, Meta(gt=0, le=1)]] = 0.75
    """The drop ends at this part of the earlier usual share."""
