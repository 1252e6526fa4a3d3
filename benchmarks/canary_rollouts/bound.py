"""A limit for every possible judge: the evidence that each request can give of a change of TTFT.

Null hypothesis: the candidate's TTFT, divided by the tolerance, is no longer in distribution than the control's. Of all
pairs of distributions that satisfy it, one is nearest to the truth: it gives both arms equal parts of the requests at
every point, after the candidate's part was made not to fall (isotonic regression). No test that is valid for that pair
is more powerful against the truth than their likelihood ratio (Neyman and Pearson), and the mean of its logarithm is
the fastest growth of valid evidence (Gruenwald, de Heide and Koolen, 1906.07801).

Requests are assumed independent of each other, and the change known exactly; no judge has either.
"""

from __future__ import annotations

import math

import numpy as np

from benchmarks.canary_rollouts.summary import at_share
from benchmarks.canary_rollouts.traffic import SIGMA, TTFT_MEDIAN_MS, Change, Floats, changed

_FROM, _TO, _STEP = -3.0, 4.5, 0.05
"""Grid of the control's TTFT, in standard deviations of its logarithm."""
_SEED = 17
_TRIALS, _PATHS = 20_000, 1_000


class Bound:
    """The limits for one change under one tolerance. rate: requests per second in each arm."""

    def __init__(self, change: Change, tolerance: float, rate: float) -> None:
        candidate, control = _shares(change, tolerance)
        pools = np.array(list(_pooled(candidate, control)))
        self._candidate, self._control = pools[:, 0], pools[:, 1]
        shares = self._candidate / (self._candidate + self._control)
        self._for, self._against = np.log(2 * shares), np.log(2 * (1 - shares))
        self._per_minute = 60 * rate

    @property
    def growth_per_minute(self) -> float:
        """Mean growth of the evidence, in natural logarithms."""
        return float(self._per_minute * (self._candidate @ self._for + self._control @ self._against))

    def most_by(self, minute: float, alpha: float) -> float:
        """Highest probability of a rollback by then, for any test with an error probability of at most alpha."""
        evidence = np.sort(self._evidence(np.random.default_rng(_SEED), (_TRIALS,), minute))[::-1]
        # under the null hypothesis, an outcome is less probable by the factor of its evidence
        errors = np.cumsum(np.exp(-evidence)) / _TRIALS
        return float(np.searchsorted(errors, alpha, side="right") / _TRIALS)

    def earliest(self, share: float, alpha: float) -> int:
        """The first minute by which such a test may have rolled back this share."""
        low, high = 0, 1
        while self.most_by(high, alpha) < share:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.most_by(middle, alpha) >= share else (middle, high)
        return high

    def gambler(self, share: float, alpha: float, minutes: int) -> float:
        """When the best evidence, looked at every minute, has rolled back this share; infinite if later."""
        steps = self._evidence(np.random.default_rng(_SEED), (_PATHS, minutes), 1.0)
        reached = np.cumsum(steps, axis=1) >= -math.log(alpha)
        first = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, math.inf)
        return at_share(sorted(first.tolist()), share)

    def _evidence(self, rng: np.random.Generator, shape: tuple[int, ...], minutes: float) -> Floats:
        found: Floats = np.zeros(shape)
        for shares, gains in ((self._candidate, self._for), (self._control, self._against)):
            for one, gain in zip(shares.tolist(), gains.tolist(), strict=True):
                if one > 0:
                    found += gain * rng.poisson(self._per_minute * minutes * one, shape)
        return found


def _shares(change: Change, tolerance: float) -> tuple[Floats, Floats]:
    """Share of each arm's requests in each cell of the grid."""
    edges = np.arange(_FROM, _TO, _STEP)
    fine = np.linspace(_FROM - 2, _TO + 2, 200_001)
    seen_ms = changed(TTFT_MEDIAN_MS * np.exp(SIGMA * fine), change) / (1 + tolerance)
    its_edges = np.interp(TTFT_MEDIAN_MS * np.exp(SIGMA * edges), seen_ms, fine)
    return _between(its_edges), _between(edges)


def _between(edges: Floats) -> Floats:
    beyond = [1.0, *(0.5 * math.erfc(edge / math.sqrt(2)) for edge in edges.tolist()), 0.0]
    return -np.diff(np.array(beyond))


def _pooled(candidate: Floats, control: Floats) -> list[tuple[float, float]]:
    """Merge neighbours until the candidate's part does not fall: pool adjacent violators."""
    pools: list[tuple[float, float]] = []
    for mine, other in zip(candidate.tolist(), control.tolist(), strict=True):
        pools.append((mine, other))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] >= pools[-1][0] * pools[-2][1]:
            last, before = pools.pop(), pools.pop()
            pools.append((before[0] + last[0], before[1] + last[1]))
    return pools
