"""The load of a fleet at its peak, and its promise."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from contracts.errors import ConfigError

NOT_KNOWN: Mapping[str, float] = MappingProxyType({})


class Workload(msgspec.Struct, frozen=True):
    """Means of the requests of one pool at its busiest."""

    requests_per_s: float
    prompt_tokens: float
    output_tokens: float
    cached_share: float = 0.0
    """Fraction of the prompt tokens that come from a prefix cache, from 0 to less than 1."""
    longest_tokens: int = 0
    """Longest prompt with its answer; 0 if no longer than the means."""
    prompt_scv: float = 1.0
    """Squared coefficient of variation of the prompts' lengths, which is used as that of their prefill."""
    prompt_p99_tokens: float = 0.0
    """If known, it gives the spread of prefill instead, since attention makes prefill grow faster than the prompt."""
    arrival_scv: float = 1.0
    """Squared coefficient of variation of the times between arrivals; 1 for random arrivals."""
    average_share: float = 1.0
    """Average load over the month as a fraction of the peak."""

    @property
    def new_tokens(self) -> float:
        """Tokens of a prompt that are not in a cache; the last one is always computed."""
        return max(self.prompt_tokens * (1 - self.cached_share), 1.0)

    @property
    def tokens(self) -> float:
        """A request's context at its end."""
        return self.prompt_tokens + self.output_tokens

    @property
    def context_tokens(self) -> int:
        """The longest context that must be served."""
        return max(self.longest_tokens, round(self.tokens))


class Promise(msgspec.Struct, frozen=True):
    """What is promised to 99 of 100 requests."""

    ttft_s: float
    tpot_s: float
    gap_s: float = 0.0
    """Longest pause that another prompt may cause in a stream; 0 if none is promised."""


class PromiseOutOfReach(ConfigError):
    """No number of replicas keeps the promise, because one idle replica does not. least: for each field of the promise
    that it breaks, the shortest time that it would keep, in seconds; empty if unknown."""

    def __init__(self, message: str, *, param: str | None = None, least: Mapping[str, float] = NOT_KNOWN) -> None:
        super().__init__(message, param=param)
        self.least = least

    @property
    def least_s(self) -> float:
        """The least value of the field that `param` names; 0 if unknown."""
        return self.least.get(self.param or "", 0.0)


def live_requests(workload: Workload, promise: Promise) -> float:
    """Requests in flight by Little's law, each as slow as the promise allows."""
    return workload.requests_per_s * (promise.ttft_s + workload.output_tokens * promise.tpot_s)
