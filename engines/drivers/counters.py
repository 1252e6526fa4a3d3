"""What an engine says it has counted since it started, for drivers whose dialect has such counters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import msgspec

from contracts.errors import EngineFailed
from engines.drivers.base import MOST_COUNTED, EngineRequest


class EngineStages(msgspec.Struct, frozen=True):
    """Where all requests' time has gone since the engine's process started, apart from decoding, and what was in vain.

    Two requests that wait side by side add up. A request's time is added when it leaves the stage; what it waits and
    computes again after a retraction is in neither.
    """

    queue_s: float
    """From the engine's queue to the first forward pass."""
    prefill_s: float
    """From there to the end of the prompt, all its chunks together."""
    requests: int
    """That have ended."""
    retractions: int
    """How often a running request was begun again for lack of KV memory."""


class EngineCounts(msgspec.Struct, frozen=True):
    """Totals over all requests since the engine's process started."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    stages: EngineStages | None = None
    """None: not told."""


@runtime_checkable
class Counting(Protocol):
    """A driver that can ask for them; pure, as every driver is."""

    def counts(self) -> EngineRequest:
        """How to ask."""
        ...

    def parse_counts(self, body: bytes) -> EngineCounts:
        """The answer. Raises EngineFailed when it cannot be read or lacks a counter."""
        ...


def sums_of_page(body: bytes, is_wanted: Callable[[bytes, bytes], bool]) -> dict[bytes, float]:
    """Of a Prometheus page, by name, the sum of each metric's samples that are wanted.

    is_wanted: of a name and its whole line. Raises EngineFailed for one of these without a number, or with one that
    nothing that counts can show.
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
        if not 0 <= value <= MOST_COUNTED:  # NaN is not either
            raise EngineFailed("The engine's counters have a number that cannot be.")
        sums[name] = sums.get(name, 0.0) + value
    return sums
