"""The outcome of one attempt at a delivery."""

from __future__ import annotations

import msgspec


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt went. status: None without an answer; error: None for a 2xx."""

    status: int | None
    error: str | None
    duration_ms: float

    @property
    def delivered(self) -> bool:
        """The receiver has it."""
        return self.error is None
