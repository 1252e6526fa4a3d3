"""The outcome of one attempt at a delivery."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of an attempt. status: None without a response. error: None for a 2xx."""

    status: int | None
    error: str | None
    duration_ms: float

    @property
    def delivered(self) -> bool:
        """Whether the receiver accepted it."""
        return self.error is None
