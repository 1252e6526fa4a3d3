"""One engine's state in the router, for clients of a gateway: without address or reason, which only operators see."""

from __future__ import annotations

import msgspec


class ReplicaState(msgspec.Struct, frozen=True):
    """state: `healthy`, `unhealthy`, `draining`, `breaker open` or similar. usable: whether it gets leases now."""

    id: str
    pool: str
    state: str
    usable: bool
