"""A request that may be copied, while it is served."""

from __future__ import annotations

from contracts.desired_state import Canary
from gateway.shadow.transcript import Transcript


class Sample:
    """State of one customer's request, or of its copy. unit: its session, see `ShadowSampler.unit`."""

    __slots__ = ("answered", "canary", "error_code", "own_text", "pool", "transcript", "unit")

    def __init__(self, canary: Canary, unit: int, transcript: Transcript) -> None:
        self.canary = canary
        self.unit = unit
        self.transcript = transcript
        self.answered = False
        """The first engine completed its response."""
        self.error_code: str | None = None
        """Error of the first engine; None: none so far."""
        self.pool = ""
        """Pool of that engine, once either is known; empty: none."""
        self.own_text: str | None = None
        """The answer's, where it may not be all that the model wrote; None: it is."""
