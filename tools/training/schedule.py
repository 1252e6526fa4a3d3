"""The learning rate and the window length by step: the rate warms up, stays constant, then falls linearly to zero.

Both depend only on the step, and the constant phase on no total, so a run can be made longer as long as its rate has
not begun to fall.
"""

from __future__ import annotations

import random

import msgspec


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Steps are optimizer steps."""

    steps: int
    """All steps of the run."""
    warmup: int = 40
    decay: int = 0
    """The last steps, over which the rate falls to zero."""
    lengths: dict[int, float] = msgspec.field(default_factory=lambda: {512: 1.0})
    """Share of the steps by window length."""
    seed: int = 0

    def rate(self, step: int) -> float:
        """Share of the peak rate, 0 to 1. step: from 0."""
        rising = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        falling = min(1.0, (self.steps - step) / self.decay) if self.decay else 1.0
        return max(0.0, min(rising, falling))

    def length(self, step: int) -> int:
        """Tokens in each of the step's windows."""
        choices = sorted(self.lengths)
        weights = [self.lengths[length] for length in choices]
        return random.Random(f"{self.seed} length {step}").choices(choices, weights)[0]
