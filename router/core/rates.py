"""How fast a pool's engines are, learnt from their reports alone: a line per pool, a ratio per replica.

    time to first token = ratio · (start + work · per_token + work · running · per_token_and_stream)
    time per token      = step + running · step_per_stream

`work` is in uncached prompt tokens, the request's own and those that were ahead of it.
"""

from __future__ import annotations

import math

from router.core.regression import Regression

KILO = 1_000.0
"""Tokens and streams are learnt in thousands and hundreds, so that all features are near 1."""
HUNDRED = 100.0
START_S = 0.02
TOKENS_PER_S = 10_000.0
STEP_S = 0.02
TRUSTED_AFTER = 16
"""Observations before a prediction may hold a request back or refuse it."""
RATIO_STEP = 0.08
RATIO_LIMITS = (1 / 32, 32.0)
SHORTEST_S = 0.001


class Ratio:
    """How one replica's times compare to its pool's: a moving mean of logarithms, so that one outlier counts little."""

    def __init__(self, speed: float = 1.0) -> None:
        self.value = 1.0 / speed
        """Above 1: slower."""
        self.count = 0

    def learn(self, observed_s: float, expected_s: float) -> None:
        """expected_s: what the pool's line says without any ratio."""
        self.count += 1
        log = math.log(max(observed_s, SHORTEST_S) / max(expected_s, SHORTEST_S))
        own = math.log(self.value)
        step = max(RATIO_STEP, 1 / (self.count + 4))
        # at most a factor of three at a time: a request that hung says "slow", not "a thousand times slower"
        moved = own + step * min(max(log - own, -1.1), 1.1)
        self.value = min(max(math.exp(moved), RATIO_LIMITS[0]), RATIO_LIMITS[1])


class Rates:
    """One pool's."""

    def __init__(self) -> None:
        self.first_token = Regression((START_S, KILO / TOKENS_PER_S, 0.0))
        self.token = Regression((STEP_S, 0.0))

    @property
    def trusted(self) -> bool:
        """Enough has been seen to act on."""
        return self.first_token.count >= TRUSTED_AFTER

    @property
    def prefill_tokens_per_s(self) -> float:
        """Of an engine that decodes nothing; 0 while nothing is known."""
        per_kilo = self.first_token.weights[1]
        return KILO / per_kilo if self.first_token.count and per_kilo > 0 else 0.0

    def first_token_s(self, work_tokens: float, running: int) -> float:
        """Expected time to the first token on an average replica."""
        start, per_kilo, harm = self.first_token.weights
        work = work_tokens / KILO
        return max(start, 0.0) + work * (max(per_kilo, 0.0) + max(harm, 0.0) * running / HUNDRED)

    def work_s(self, work_tokens: float, running: int) -> float:
        """The part of it that is work: what this much prefill keeps an engine busy."""
        _, per_kilo, harm = self.first_token.weights
        return work_tokens / KILO * (max(per_kilo, 0.0) + max(harm, 0.0) * running / HUNDRED)

    def token_s(self, running: int) -> float:
        """Expected time per token with this many streams."""
        return max(self.token.weights[0] + self.token.weights[1] * running / HUNDRED, 0.0)

    @property
    def token_s_per_stream(self) -> float:
        """What one more stream adds to everyone's time per token."""
        return max(self.token.weights[1], 0.0) / HUNDRED

    def saw_first_token(self, ratio: Ratio, observed_s: float, work_tokens: float, running: int) -> None:
        """A request with this much work, its own and ahead of it, began to answer after `observed_s`."""
        expected_s = self.first_token_s(work_tokens, running)
        if self.trusted:
            ratio.learn(observed_s, expected_s)
        work = work_tokens / KILO
        self.first_token.learn((1.0, work, work * running / HUNDRED), observed_s / ratio.value)

    def saw_tokens(self, seconds_per_token: float, running: int) -> None:
        """An answer came at this pace beside `running` others on average."""
        self.token.learn((1.0, running / HUNDRED), seconds_per_token)
