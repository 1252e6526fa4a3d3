"""Settings of shadowing: which requests are copied to candidates, and which results are kept."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from contracts.fixed import Fixed


class ShadowConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One gateway's part."""

    at_once: Fixed[Annotated[int, Meta(ge=0, le=64)]] = 2
    """Copies of requests that may run at candidates at a time, each alone on an idle replica; 0: no copies."""
    per_minute: Annotated[int, Meta(ge=1, le=10_000)] = 60
    """Maximum number of copies started per minute, of which one organization gets at most a quarter."""
    timeout_s: Fixed[Annotated[float, Meta(gt=0, le=600)]] = 60.0
    """Longest time a copy may take; it is then ended and noted as late."""
    review_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Share of the differing pairs of projects with `allow_reviews` whose texts are stored for reviewers of the
    operating organization. 0: none."""
    flush_s: Fixed[Annotated[float, Meta(gt=0, le=60)]] = 1.0
    """Interval between writes of pairs to the database."""
