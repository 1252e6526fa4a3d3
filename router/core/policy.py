"""The interface of a placement policy, which the core calls. Each policy is a file in `router/policies/`."""

from __future__ import annotations

from typing import Protocol

from router.core.candidates import PlacementContext
from router.core.replica import Replica


class Policy(Protocol):
    """Chooses among replicas that could all take the request. Pure except for its own memory."""

    name: str

    def choose(self, context: PlacementContext) -> Replica | None:
        """A replica of `context.pool.free` for which `context.takes` is True, or None.

        The core calls this once per attempt to place a request, in the order of decisions, and counts the lease on the
        chosen replica before the next call. A policy may consider only a few replicas, but must not return None while
        another one could take the request, because the request would wait despite a free engine.
        """
        ...
