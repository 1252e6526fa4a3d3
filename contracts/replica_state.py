"""One engine as the router sees it, for clients of a gateway: without address or reason, which are for the operator."""

from __future__ import annotations

import msgspec


class ReplicaState(msgspec.Struct, frozen=True):
    """state: a word or two, `healthy`, `unhealthy`, `draining`, `breaker open`. usable: it gets leases now."""

    id: str
    pool: str
    state: str
    usable: bool
