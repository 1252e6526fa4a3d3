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
        """Whether the first engine completed its response."""
        self.error_code: str | None = None
        """Error of the first engine; None if it has reported none."""
        self.pool = ""
        """Pool of the first engine, once it has answered or failed; empty before."""
        self.own_text: str | None = None
        """The answer's text, if it may be less than the model wrote; None if it is the model's whole text."""
