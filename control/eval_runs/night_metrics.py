"""The worker's metrics of nights, read from their rows so that a restarted worker shows the same."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge

from control.eval_runs.nights import EvalNight
from storage.tables.evals import Decision


class NightMetrics:
    """The gauges of one worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._failed = Gauge(
            "slipstream_eval_night_slice_failed",
            "1 for each slice that the last nightly eval run of a model found to be worse. `change` names the "
            "difference from the model's previous version, or is `unchanged`.",
            ["model", "pool", "slice", "change"],
            registry=registry,
        )
        self._slices = Gauge(
            "slipstream_eval_night_slices",
            "Slices of a model's last nightly eval run, by verdict: pass, fail, inconclusive.",
            ["model", "pool", "decision"],
            registry=registry,
        )
        self._night = Gauge(
            "slipstream_eval_night_judged_timestamp_seconds",
            "Time at which a model's last nightly eval run was judged, in seconds since 1970.",
            ["model", "pool"],
            registry=registry,
        )

    def show(self, nights: Sequence[EvalNight]) -> None:
        """Show only the last night of each model from now on."""
        for gauge in (self._failed, self._slices, self._night):
            gauge.clear()
        for each in nights:
            self._night.labels(each.model, each.pool).set(each.judged_at.timestamp())
            change = "; ".join(each.changed) or "unchanged"
            for decision in Decision:
                count = sum(one.decision is decision for one in each.slices)
                self._slices.labels(each.model, each.pool, decision.value).set(count)
            for one in each.slices:
                if one.decision is Decision.FAIL:
                    self._failed.labels(each.model, each.pool, one.slice, change).set(1)
