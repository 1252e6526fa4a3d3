"""The interface of a placement policy, which the core calls: each is a file in `router/policies/`."""

from __future__ import annotations

from typing import Protocol

from router.core.candidates import PlacementContext
from router.core.replica import Replica


class Policy(Protocol):
    """Chooses among replicas that could all take the request. Pure except for its own memory."""

    name: str

    def choose(self, context: PlacementContext) -> Replica | None:
        """A replica of `context.pool.free` for which `context.takes` it; None when there is none.

        Called once per attempt to place an ask, in the order of decisions; the core counts the lease on the choice
        before the next call. A policy may consider only a few replicas, but must not return None while another one
        would take the ask: the ask would wait despite a free engine.
        """
        ...
