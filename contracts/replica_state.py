"""One engine as the router sees it, for whoever asks a gateway: without address or reason, which are the operator's."""

from __future__ import annotations

import msgspec


class ReplicaState(msgspec.Struct, frozen=True):
    """state: a word or two, `healthy`, `unhealthy`, `draining`, `breaker open`. usable: it is given leases now."""

    id: str
    pool: str
    state: str
    usable: bool
