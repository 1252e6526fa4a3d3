"""What an engine says it has counted since it started, for drivers whose dialect has such counters."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec

from engines.drivers.base import EngineRequest


class EngineCounts(msgspec.Struct, frozen=True):
    """Totals over all requests since the engine's process started."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@runtime_checkable
class Counting(Protocol):
    """A driver that can ask for them; pure, as every driver is."""

    def counts(self) -> EngineRequest:
        """How to ask."""
        ...

    def parse_counts(self, body: bytes) -> EngineCounts:
        """The answer. Raises EngineFailed when it cannot be read or lacks a counter."""
        ...
