"""One request and its response, as the client saw them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from router.config import SloClass
from tools.simulator.arrival import Arrival
from tools.simulator.outcome import PROMISES, keeps, promise_to


class Answer(msgspec.Struct):
    """Seconds count from the sending of the request, unless stated otherwise. `ended_s` is set only after a success."""

    arrival: Arrival
    first_s: float | None = None
    """When the first event with text, reasoning or a tool call arrived."""
    ended_s: float | None = None
    sent_s: float = 0.0
    """When the request was sent, from the start of the load."""
    gaps_s: list[float] = []
    """Gaps between consecutive events with text, reasoning or a tool call."""
    prompt_tokens: int | None = None
    """From `usage`, like the next two; None if the server sent no usage."""
    output_tokens: int | None = None
    cached_tokens: int = 0
    fault: str = ""
    """Status and code of a refusal, or the reason why a stream broke off."""

    @property
    def tpot_s(self) -> float | None:
        """Mean time per token after the first; None if there is no such token."""
        output = self.arrival.output_tokens if self.output_tokens is None else self.output_tokens
        if self.first_s is None or self.ended_s is None or output < 2:
            return None
        return (self.ended_s - self.first_s) / (output - 1)

    def kept(self, promises: Sequence[SloClass] = PROMISES) -> bool:
        """Whether the answer met both objectives."""
        promise = promise_to(self.arrival, promises)
        return self.ended_s is not None and keeps(promise, self.first_s, self.tpot_s or 0.0)
