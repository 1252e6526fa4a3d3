"""Settings of the release controller."""

from __future__ import annotations

from typing import Annotated

import msgspec

from contracts.fixed import Fixed


class ReleasesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Advance of releases."""

    every_s: Fixed[Annotated[float, msgspec.Meta(ge=0.2, le=60)]] = 2.0
    """Seconds between looks at the evidence: about as long as a verdict may wait for its request."""
    requests_per_step: Fixed[Annotated[int, msgspec.Meta(ge=100, le=100_000)]] = 2_000
    """Most requests that one step takes as evidence and keeps; of more, whole sessions are drawn by hash."""
    baseline_days: Fixed[Annotated[int, msgspec.Meta(ge=1, le=90)]] = 7
    """Oldest age of the baseline's requests from which thresholds are computed."""
    baseline_requests: Fixed[Annotated[int, msgspec.Meta(ge=1_000, le=1_000_000)]] = 20_000
    """Limit of these requests, the newest of each organization."""
    organization_share: Annotated[float, msgspec.Meta(ge=0.5, le=1)] = 0.5
    """Largest part of the sessions that a release is judged by, and of the baseline's requests, that one organization
    may have where there are others; 1: no limit."""


class EvidenceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker's retention for finished work; verdicts stay."""

    item_retention_days: Fixed[Annotated[int, msgspec.Meta(ge=1, le=36_500)]] = 400
    """Days the items of a run of evals and their answers are kept after it has ended."""
    step_retention_days: Fixed[Annotated[int, msgspec.Meta(ge=1, le=36_500)]] = 400
    """Days what the steps of a release consumed is kept after it has ended: as long as it can be replayed."""
