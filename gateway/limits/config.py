"""Settings of the limiter, composed into the gateway's."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from contracts.fixed import Fixed

Percent = Annotated[int, msgspec.Meta(ge=1, le=1_000)]


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How limits are counted, and what happens without Valkey."""

    when_unavailable: Literal["refuse", "local"] = "refuse"
    """Handling of limited requests while Valkey is unreachable. `refuse`: they get 503 with Retry-After. `local`: every
    gateway enforces its own share, limit / expected_instances. `slipstream_limits_mode` shows the current mode."""
    local_money_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """In `local` mode, the percentage of each month's budget that all gateways together may spend without Valkey,
    regardless of earlier spending. It bounds how far a budget can be exceeded per month and start of a gateway. 0: only
    free models."""
    expected_instances: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """Number of gateway instances that share a limit in `local` mode. If the number is too low, limits allow more,
    never less."""
    call_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=10)] = 0.5
    """Longest wait for a response from Valkey. After it, the request is handled as if Valkey were unreachable."""
    lease_s: Annotated[float, msgspec.Meta(ge=0.3, le=300)] = 15.0
    """How long requests of a dead gateway still count as running. A live gateway renews its lease three times in this
    period."""
    record_s: Fixed[Annotated[float, msgspec.Meta(ge=60, le=86_400)]] = 300.0
    """How long a settlement that does not reach Valkey is retried. After that, the reservation is ended as a stray
    (`stray_s`). The time must be longer than a reserve call can take to arrive."""
    stray_s: Fixed[Annotated[float, msgspec.Meta(ge=0.05, le=3_600)]] = 30.0
    """Interval at which a gateway looks in Valkey for its own reservations that it no longer knows, and ends them."""
    max_delayed_settlements: Annotated[int, msgspec.Meta(ge=100, le=1_000_000)] = 20_000
    """Maximum number of settlements kept for a retry while Valkey is unreachable. Beyond it, the oldest is dropped and
    counted."""
    key_prefix: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9:_-]{1,32}$", description="1 to 32 letters, digits, :, _ and -")
    ] = "slipstream"
    """Prefix of every key in Valkey, so that deployments can share a server."""
    budget_percents: tuple[Percent, ...] = (50, 80, 100)
    """Percentages of a monthly budget at which an alert is sent, in ascending order. Each is sent once per month and
    budget."""
    seed_poll_s: Fixed[Annotated[float, msgspec.Meta(ge=0.01, le=10)]] = 0.25
    """Interval at which a gateway that waits for a budget's recount checks for its end."""
    seed_wait_s: Fixed[Annotated[float, msgspec.Meta(ge=0, le=30)]] = 2.0
    """How long a request waits for a budget's recount before it is refused with 503."""
    seed_patience_s: Fixed[Annotated[float, msgspec.Meta(ge=0.1, le=86_400)]] = 60.0
    """How long a recount waits for a gateway that does not answer. After that, the budget is counted without that
    gateway's unshipped journal, and an error is logged. A neighbour on the same machine adopts such a journal within
    `metering.adopt_after_s`."""
