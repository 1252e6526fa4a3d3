"""The limiter's metrics. One instance per registry; nothing is registered at import."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from gateway.observability.loop_counter import LoopCounter
from gateway.observability.loop_histogram import LoopHistogram

NORMAL, LOCAL, REFUSING = 0, 1, 2


class LimitsMetrics:
    """Registers all metrics in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(LoopCounter, registry=registry), partial(Gauge, registry=registry)
        self.decisions = counter(
            "slipstream_limits_decisions",
            "Reservations requested, by result and by the level and counter that refused them (empty if admitted).",
            ("result", "level", "counter"),
        )
        self.admitted = self.decisions.labels("admitted", "", "")
        self.unavailable = counter(
            "slipstream_limits_unavailable",
            "Reservations decided without Valkey: refused, or counted against this instance's local share (`local`).",
            ("handled",),
        )
        self.mode = gauge(
            "slipstream_limits_mode",
            "How limits are enforced. 0: exactly, in Valkey. 1: by this instance's share. 2: limited keys are refused.",
        )
        self.reserve_seconds = LoopHistogram(
            "slipstream_limits_reserve_seconds",
            "Time to decide a reservation.",
            (),
            buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0),
            registry=registry,
        ).labels()
        self.open = gauge(
            "slipstream_limits_open_reservations",
            "Reservations of this instance that were not settled at the last heartbeat.",
        )
        self.delayed = gauge(
            "slipstream_limits_delayed_settlements",
            "Settlements that wait until Valkey is reachable again.",
        )
        self.dropped = counter(
            "slipstream_limits_dropped_settlements",
            "Settlements dropped because there were too many or they were too old. Their reservations end as strays.",
        )
        self.announced = counter(
            "slipstream_limits_announced",
            "Open reservations announced again because Valkey lost its data or a budget was recounted.",
        )
        self.unseeded = counter(
            "slipstream_limits_budget_unavailable",
            "Requests refused because a budget's spending was being counted.",
        )
        self.seeded = counter(
            "slipstream_limits_seeded",
            "Budgets whose spending this instance counted from the ledger, after `all` gateways answered or "
            "`without` some of them.",
            ("heard",),
        )
        self.retired = counter(
            "slipstream_limits_retired",
            "Stray reservations ended because no gateway held them any longer. Only the ledger has their cost.",
        )
        self.crossings = counter(
            "slipstream_limits_budget_crossings",
            "Reports that a budget reached a threshold, by percent, or refused its first request of a month "
            "(`refused`).",
            ("percent",),
        )
