"""What a placement policy is. One policy, one file; `registry.py` names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from contracts.lease import Ask
from router.core.replica import Replica


class Policy(Protocol):
    """Chooses among replicas that could all take the request. Pure but for its own memory."""

    name: str

    def choose(self, ask: Ask, candidates: Sequence[Replica], now: float) -> Replica:
        """One of `candidates`, which is never empty; each is healthy, has a place left and is not excluded.

        Called once per placement, in the order of decisions; the dispatcher counts the lease on the choice before it
        asks again. now: monotonic seconds.
        """
        ...
