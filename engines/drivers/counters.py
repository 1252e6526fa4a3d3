"""An engine's counters since its start, for drivers whose dialect has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from contracts.errors import EngineFailed
from engines.drivers.base import MAX_COUNTED, EngineRequest


class EngineStages(msgspec.Struct, frozen=True):
    """Total time of all requests by stage since the engine's process started, except decoding, and its retractions.

    The times of concurrent requests add up. A request's time is added when it leaves the stage. Waits and recomputation
    after a retraction are in neither stage.
    """

    queue_s: float
    """Time from entering the engine's queue to the first forward pass."""
    prefill_s: float
    """Time from the first forward pass to the end of the prompt, over all its chunks."""
    requests: int
    """Number of ended requests."""
    retractions: int
    """Number of times that a running request was restarted for lack of KV memory."""


class EngineCounts(msgspec.Struct, frozen=True):
    """Totals over all requests since the engine's process started."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stages: EngineStages | None = None
    """None if not reported."""


@runtime_checkable
class Counting(Protocol):
    """A driver that can request the counters; pure, like every driver."""

    def counts(self) -> EngineRequest:
        """The request for the counters."""
        ...

    def parse_counts(self, body: bytes) -> EngineCounts:
        """The counters in a response. Raises EngineFailed if it cannot be read or lacks a counter."""
        ...


def sums_of_page(body: bytes, is_wanted: Callable[[bytes, bytes], bool]) -> dict[bytes, float]:
    """Sums of the wanted samples of a Prometheus page, by metric. is_wanted: called with a name and its whole line.

    Raises EngineFailed for a wanted sample without a number, or with a number that no counter can have.
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
        if not 0 <= value <= MAX_COUNTED:  # also false for NaN
            raise EngineFailed("The engine's counters have an impossible number.")
        sums[name] = sums.get(name, 0.0) + value
    return sums
