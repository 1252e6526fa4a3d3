"""Settings of the limiter, composed into the gateway's."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from contracts.fixed import Fixed

Percent = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How limits are counted, and what happens without Valkey."""

    when_unavailable: Literal["refuse", "local"] = "refuse"
    """What happens to limited requests while Valkey cannot be reached: `refuse` answers 503 with Retry-After; `local`
    lets every gateway enforce its own share, limit / expected_instances. Both show in `slipstream_limits_mode`."""
    local_money_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """In `local` mode: share of each month's budget that all gateways together may spend without Valkey, whatever was
    spent before. It bounds the overshoot of a budget, per month and start of a gateway. 0: free models only."""
    expected_instances: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """Gateway instances that share a limit in `local` mode. Too low a number lets more through, never less."""
    call_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=10)] = 0.5
    """Longest wait for one answer from Valkey; after it the request is treated as if Valkey were gone."""
    lease_s: Annotated[float, msgspec.Meta(ge=0.3, le=300)] = 15.0
    """How long a dead gateway's requests still count as running. A live one renews every third of it."""
    record_s: Fixed[Annotated[float, msgspec.Meta(ge=60, le=86_400)]] = 300.0
    """How long a settlement that does not reach Valkey is retried; then the reservation is ended as a stray
    (`stray_s`). Must be longer than a reserve can be on its way."""
    stray_s: Fixed[Annotated[float, msgspec.Meta(ge=0.05, le=3_600)]] = 30.0
    """Interval at which a gateway looks in Valkey for its own reservations that it no longer has, and ends them."""
    max_delayed_settlements: Annotated[int, msgspec.Meta(ge=100, le=1_000_000)] = 20_000
    """Settlements kept for a second try while Valkey is gone; beyond it the oldest is dropped, and counted."""
    key_prefix: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9:_-]{1,32}$", description="1 to 32 letters, digits, :, _ and -")
    ] = "slipstream"
    """Begins every key in Valkey, so that deployments can share one."""
    budget_percents: tuple[Percent, ...] = (50, 80, 100)
    """Percentages of a month's money that send an alert when spending reaches them, once for each limit of a month;
    ascending."""
    seed_poll_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=10)]] = 0.25
    """Interval at which a gateway that waits for a budget's recount checks for its end."""
    seed_wait_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=30)]] = 2.0
    """How long a request waits for a budget's recount before it is refused with 503."""
    seed_patience_s: Fixed[Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]] = 60.0
    """How long counting waits for a gateway that does not answer. After it the budget is counted without that gateway's
    unshipped journal, loudly; a neighbour on the same machine adopts such a journal within `metering.adopt_after_s`."""
