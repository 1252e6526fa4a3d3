"""The times and lengths of a load's requests."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

from tools.simulator.arrival import Arrival

Span = tuple[int, int]
"""Minimum and maximum tokens; lengths are drawn uniformly between them."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Each stream sends its next request when its response has ended. With a rate or a trace, requests are sent at
    their times instead, however many are running."""

    streams: int = 1
    rate: float | None = None
    """Requests per second, at random times."""
    trace: Sequence[Arrival] = ()
    """Requests in order of time, the first at 0."""
    prompt_tokens: Span = (512, 512)
    output_tokens: Span = (128, 128)
    seconds: float = 30.0
    """How long requests that count are sent."""
    warm_up_s: float = 5.0
    """How long requests that do not count are sent first. With a trace, they are its first requests."""
    seed: int = 1

    @property
    def whole_s(self) -> float:
        """Duration of the load including the warm-up."""
        return self.warm_up_s + self.seconds

    @property
    def closed(self) -> bool:
        """Whether responses decide when the next request is sent."""
        return self.rate is None and not self.trace

    def arrivals(self) -> Iterator[Arrival]:
        """Requests in order of time. For a closed load, all times are 0 and the requests never end."""
        if self.trace:
            yield from (arrival for arrival in self.trace if arrival.at_s < self.whole_s)
            return
        rng, at_s = random.Random(self.seed), 0.0  # noqa: S311  repeatable
        while at_s < self.whole_s:
            yield Arrival(at_s, rng.randint(*self.prompt_tokens), rng.randint(*self.output_tokens))
            if self.rate is not None:
                at_s += rng.expovariate(self.rate)
