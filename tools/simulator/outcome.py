"""The outcome of one request."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from contracts.generation import Tier
from router.config import SLOS, SloClass, slo_of
from tools.simulator.arrival import Arrival

PROMISES = tuple(slo for slo in SLOS if slo.tier is Tier.CHAT)
"""The promises that define goodput, by rising length of the prompt."""


class Outcome(msgspec.Struct):
    """Filled in during the simulation. At its end, either `ended_at` or `refused_at` is set. Times are in simulated
    seconds."""

    arrival: Arrival
    promise: SloClass | None = None
    """None for that of `PROMISES`."""
    asked_at: float = 0.0
    """Time of the latest attempt, which is later than the arrival if the client retried."""
    asked: int = 0
    replica: int = -1
    granted_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    refused_at: float | None = None
    cached_tokens: int = 0
    retractions: int = 0
    code: str = ""
    reason: str = ""
    retry_after_s: float | None = None
    told_first_s: float | None = None
    """The Retry-After of the first refusal."""

    @property
    def over(self) -> bool:
        """Whether the request was answered in full or refused."""
        return self.ended_at is not None or self.refused_at is not None

    @property
    def ttft_s(self) -> float | None:
        """Time from the latest attempt to the first token, including the queue."""
        return None if self.first_token_at is None else self.first_token_at - self.asked_at

    @property
    def tpot_s(self) -> float:
        """Mean time per token after the first; 0 for a response of one token."""
        if self.ended_at is None or self.first_token_at is None or self.arrival.output_tokens < 2:
            return 0.0
        return (self.ended_at - self.first_token_at) / (self.arrival.output_tokens - 1)

    @property
    def kept(self) -> bool:
        """Whether both promises were kept."""
        return self.ended_at is not None and keeps(self.promise or promise_to(self.arrival), self.ttft_s, self.tpot_s)


def keeps(promise: SloClass, ttft_s: float | None, tpot_s: float) -> bool:
    """Whether a response that ended kept both promises. ttft_s: None if it had no token."""
    return ttft_s is not None and ttft_s <= promise.ttft_s and (not promise.tpot_s or tpot_s <= promise.tpot_s)


def promise_to(arrival: Arrival, promises: Sequence[SloClass] = PROMISES) -> SloClass:
    """TTFT, from the request to the router, and mean time per token after it. promises: of one tier, by rising length
    of the prompt."""
    promise = slo_of(promises, promises[0].tier, arrival.prompt_tokens)
    assert promise is not None
    return promise
