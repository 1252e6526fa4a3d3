"""What is asked of a fleet at its peak, and what it promises."""

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
    """Part of the prompt tokens that a prefix cache answers, 0 up to but without 1."""
    longest_tokens: int = 0
    """Of a prompt and its answer; 0: no longer than the means."""
    prompt_scv: float = 1.0
    """Squared coefficient of variation of the prompts' lengths, which stands for that of their prefill."""
    prompt_p99_tokens: float = 0.0
    """Where it is known, it tells the spread of prefill instead: attention makes long prompts dearer than long."""
    arrival_scv: float = 1.0
    """The same of the times between arrivals; 1: at random."""
    average_share: float = 1.0
    """Average load over the month as part of the peak."""

    @property
    def new_tokens(self) -> float:
        """Of a prompt, computed and not found in a cache; the last one always is."""
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
    """What is kept for 99 of 100 requests."""

    ttft_s: float
    tpot_s: float
    gap_s: float = 0.0
    """Longest pause in a stream that a prompt beside it may make; 0: none is promised."""


class PromiseOutOfReach(ConfigError):
    """No number of replicas keeps the promise, because one idle replica does not. least: of every field of the promise
    that it breaks the shortest that it would keep, in seconds; empty: not known."""

    def __init__(self, message: str, *, param: str | None = None, least: Mapping[str, float] = NOT_KNOWN) -> None:
        super().__init__(message, param=param)
        self.least = least

    @property
    def least_s(self) -> float:
        """Of what `param` names; 0: not known."""
        return self.least.get(self.param or "", 0.0)


def live_requests(workload: Workload, promise: Promise) -> float:
    """Requests under way at once by Little's law, each as slow as the promise allows."""
    return workload.requests_per_s * (promise.ttft_s + workload.output_tokens * promise.tpot_s)
