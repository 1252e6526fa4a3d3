"""Settings of the limiter, composed into the gateway's."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class LimitsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How limits are counted, and what happens when they cannot be."""

    when_unavailable: Literal["refuse", "local"] = "refuse"
    """What happens to keys with limits while Valkey cannot be reached: `refuse` answers 503 with Retry-After; `local`
    lets every gateway enforce its own share, limit / expected_instances. Both show in `slipstream_limits_mode`."""
    expected_instances: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """Gateway instances that share a limit in `local` mode. Too low a number lets more through, never less."""
    call_timeout_s: Annotated[float, msgspec.Meta(ge=0.01, le=10)] = 0.5
    """Longest wait for one answer from Valkey; after it the request is treated as if Valkey were gone."""
    lease_s: Annotated[float, msgspec.Meta(ge=1, le=300)] = 15.0
    """How long a dead gateway's requests still count as running. A live one renews every third of it."""
    record_s: Annotated[float, msgspec.Meta(ge=60, le=86_400)] = 300.0
    """How long a reservation is remembered without being renewed. A settlement that Valkey's absence delays for
    longer than this no longer changes the rates, which have long refilled."""
    max_delayed_settlements: Annotated[int, msgspec.Meta(ge=100, le=1_000_000)] = 20_000
    """Settlements kept for a second try while Valkey is gone; beyond it the oldest is dropped, and counted."""
    key_prefix: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9:_-]{1,32}$")] = "slipstream"
    """Begins every key in Valkey, so that deployments can share one."""
