"""A request that may be copied, while it is served."""

from __future__ import annotations

from contracts.desired_state import Canary
from gateway.shadow.transcript import Transcript


class Sample:
    """Of one customer's request, or of its copy. unit: its session, as `ShadowSampler.unit` numbers it."""

    __slots__ = ("answered", "canary", "error_code", "own_text", "pool", "transcript", "unit")

    def __init__(self, canary: Canary, unit: int, transcript: Transcript) -> None:
        self.canary = canary
        self.unit = unit
        self.transcript = transcript
        self.answered = False
        """By the first engine that was asked, to the end."""
        self.error_code: str | None = None
        """What the first engine that was asked failed with; None: with nothing so far."""
        self.pool = ""
        """Of that engine, once one of both is known; empty: there was none."""
        self.own_text: str | None = None
        """The answer's, where it may not be all that the model wrote; None: it is."""
