"""An engine's counters since its start, for drivers whose dialect has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from contracts.errors import EngineFailed
from engines.drivers.base import MAX_COUNTED, EngineRequest


class EngineStages(msgspec.Struct, frozen=True):
    """Total time of all requests by stage since the engine's process started, without decoding, and its retractions.

    Two requests that wait at the same time add up. A request's time is added when it leaves the stage; waits and
    recomputation after a retraction are in neither.
    """

    queue_s: float
    """From the engine's queue to the first forward pass."""
    prefill_s: float
    """From there to the end of the prompt, all its chunks together."""
    requests: int
    """Ended requests."""
    retractions: int
    """Number of times that a running request was restarted for lack of KV memory."""


class EngineCounts(msgspec.Struct, frozen=True):
    """Totals over all requests since the engine's process started."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stages: EngineStages | None = None
    """None: not reported."""


@runtime_checkable
class Counting(Protocol):
    """A driver that can request them; pure, like every driver."""

    def counts(self) -> EngineRequest:
        """The request for the counters."""
        ...

    def parse_counts(self, body: bytes) -> EngineCounts:
        """The answer. Raises EngineFailed when it cannot be read or lacks a counter."""
        ...


def sums_of_page(body: bytes, is_wanted: Callable[[bytes, bytes], bool]) -> dict[bytes, float]:
    """Sums of the wanted samples of a Prometheus page, by metric. is_wanted: called with a name and its whole line.

    Raises EngineFailed for a wanted sample without a number, or with one that no counter can have.
    """
    sums: dict[bytes, float] = {}
    for line in body.splitlines():
        name = line.partition(b"{")[0].partition(b" ")[0]
        if not is_wanted(name, line):
            continue
        try:
            value = float(line.rsplit(b" ", 1)[1])
        except (IndexError, ValueError):
            raise EngineFailed("The engine's counters cannot be read.") from None
        if not 0 <= value <= MAX_COUNTED:  # NaN is not either
            raise EngineFailed("The engine's counters have an impossible number.")
        sums[name] = sums.get(name, 0.0) + value
    return sums
