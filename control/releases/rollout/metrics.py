"""The worker's metrics of releases, read from their rows so that a restarted worker reports the same."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from prometheus_client import CollectorRegistry, Gauge

from control.releases.machine import State


class Standing(msgspec.Struct, frozen=True):
    """Metrics of a model's newest release."""

    model: str
    state: State
    share: float
    stage_began_at: datetime
    ended_at: datetime | None
    blind_s: float = 0.0
    """How long a transaction has kept the release's newest requests from being counted."""


class ReleaseMetrics:
    """The gauges of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._share = Gauge(
            "slipstream_release_share",
            "Share of a model's sessions that its running release sends to the candidate; 0 in the shadow stage and "
            "before the first stage begins.",
            ["model"],
            registry=registry,
        )
        self._began = Gauge(
            "slipstream_release_stage_began_timestamp_seconds",
            "Time at which a model's running release entered its stage, in seconds since 1970, by state: waiting, "
            "running, held.",
            ["model", "state"],
            registry=registry,
        )
        self._blind = Gauge(
            "slipstream_release_blind_seconds",
            "Time for which an open transaction has kept the newest requests of a model's running release from being "
            "counted; 0 if none does.",
            ["model"],
            registry=registry,
        )
        self._ended = Gauge(
            "slipstream_release_ended_timestamp_seconds",
            "Time at which a model's newest release ended, in seconds since 1970, by outcome: promoted, rolled_back.",
            ["model", "state"],
            registry=registry,
        )
        self._looked = Gauge(
            "slipstream_release_controller_run_timestamp_seconds",
            "Time at which this worker last evaluated the releases, in seconds since 1970.",
            registry=registry,
        )

    def tell(self, standings: Iterable[Standing], at_s: float) -> None:
        """Show only these from now on. at_s: when they were read, in seconds since 1970."""
        for gauge in (self._share, self._began, self._blind, self._ended):
            gauge.clear()
        for each in standings:
            labels = (each.model, each.state.value)
            if each.ended_at is not None:
                self._ended.labels(*labels).set(each.ended_at.timestamp())
            else:
                self._share.labels(each.model).set(each.share if each.state.splits else 0.0)
                self._blind.labels(each.model).set(each.blind_s)
                self._began.labels(*labels).set(each.stage_began_at.timestamp())
        self._looked.set(at_s)
