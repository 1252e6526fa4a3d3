"""When which lengths are requested."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

from tools.simulator.arrival import Arrival

Span = tuple[int, int]
"""Least and most tokens, drawn evenly."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A number of streams that each send the next request when a response has ended; with a rate or a trace, requests
    at their times, however many run."""

    streams: int = 1
    rate: float | None = None
    """Requests per second, at random times."""
    trace: Sequence[Arrival] = ()
    """By time, the first at 0."""
    prompt_tokens: Span = (512, 512)
    output_tokens: Span = (128, 128)
    seconds: float = 30.0
    """In which requests are sent that count."""
    warm_up_s: float = 5.0
    """Before them: requests that do not count. Those of a trace are its first ones."""
    seed: int = 1

    @property
    def whole_s(self) -> float:
        """With the warm-up."""
        return self.warm_up_s + self.seconds

    @property
    def closed(self) -> bool:
        """Whether responses decide when the next request is sent."""
        return self.rate is None and not self.trace

    def arrivals(self) -> Iterator[Arrival]:
        """Requests by time. Where the load is closed, times are 0 and there is no end."""
        if self.trace:
            yield from (arrival for arrival in self.trace if arrival.at_s < self.whole_s)
            return
        drawn, at_s = random.Random(self.seed), 0.0  # noqa: S311  repeatable
        while at_s < self.whole_s:
            yield Arrival(at_s, drawn.randint(*self.prompt_tokens), drawn.randint(*self.output_tokens))
            if self.rate is not None:
                at_s += drawn.expovariate(self.rate)
