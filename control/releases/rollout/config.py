"""Settings of the release controller."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed


class ReleasesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Advance of releases."""

    every_s: Fixed[Annotated[float, msgspec.Meta(ge=0.2, le=60)]] = 2.0
    """Interval between looks at the evidence, and so the longest delay of a verdict."""
    requests_per_step: Fixed[Annotated[int, msgspec.Meta(ge=100, le=100_000)]] = 2_000
    """Maximum number of requests that one step uses as evidence and stores. If there are more, whole sessions are drawn
    by hash."""
    baseline_days: Fixed[Annotated[int, msgspec.Meta(ge=1, le=90)]] = 7
    """Maximum age of the baseline's requests from which thresholds are computed."""
    baseline_requests: Fixed[Annotated[int, msgspec.Meta(ge=1_000, le=1_000_000)]] = 20_000
    """Maximum number of these requests. The most recent ones of each organization are used."""
    organization_share: Annotated[float, msgspec.Meta(ge=0.5, le=1)] = 0.5
    """Maximum share of one organization in the sessions that judge a release, and in the baseline's requests, if there
    are other organizations. 1: no limit."""


class EvidenceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's retention of completed work. Verdicts are kept."""

    item_retention_days: Fixed[Annotated[int, msgspec.Meta(ge=1, le=36_500)]] = 400
    """Days for which the items of a completed eval run and their answers are kept."""
    step_retention_days: Fixed[Annotated[int, msgspec.Meta(ge=1, le=36_500)]] = 400
    """Days for which the evidence of a completed release's steps is kept. Until then, the release can be replayed."""
