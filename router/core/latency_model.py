"""The speed of a pool's engines, learnt from reports alone, as a formula per pool and a ratio per replica.

    time to first token = ratio · (start + tokens · a + pairs · b + tokens · running · c)
    time per token      = step + running · step_per_stream          (between prompts)

`tokens` are the uncached prompt tokens of the request and of the requests that were ahead of it. `pairs` are their
attention pairs: each new token with every token before it. The time for which a response paused while the engine
computed prompts is subtracted from its duration, and the longer the pause, the less the response counts: under load
every response is slow, and if the model took this for the engines' speed, the pool would get more and more requests.
"""

from __future__ import annotations

import math

from router.core.regression import Regression

KILO, TEN_MILLION, HUNDRED_KILO, HUNDRED = 1e3, 1e7, 1e5, 1e2
"""Units that make the features close to 1."""
START_S = 0.02
TOKENS_PER_S = 10_000.0
STEP_S = 0.02
TRUSTED_AFTER = 16
"""Number of observations before a prediction may hold a request back or refuse it."""
RATIO_STEP = 0.05
RATIO_LIMITS = (1 / 32, 32.0)
JUMP = math.log(4.0)
"""Largest factor that an outlier counts: a request that hung means "slow", not "a thousand times slower"."""
SHORTEST_S = 0.002
TELLING_TOKENS = 8
"""Shorter responses arrive in one read, however slow the engine is."""
MAX_RUNNING = 4_096
"""Most running streams of a response that is learnt from. The engine itself reports the number, and one that is far too
high would outweigh tens of thousands of later responses."""
MIN_SHARE = 0.1
"""Least share of a response's time without pauses; below it, the response reveals nothing about the time per token."""


class Ratio:
    """The ratio of times to their pool's formula, as a moving mean of logarithms, so that one outlier counts little. A
    replica's ratio consists of several of these; see `slowness`."""

    def __init__(self, speed: float = 1.0) -> None:
        self.value = 1.0 / speed
        """The ratio; above 1 means slower."""
        self.count = 0

    def learn(self, observed_s: float, expected_s: float, least_step: float = RATIO_STEP) -> None:
        """Learn one time. expected_s: the time by the pool's formula, without any ratio. least_step: least weight of
        one of many reports."""
        self.count += 1
        own = math.log(self.value)
        error = math.log(max(observed_s, SHORTEST_S) / max(expected_s, SHORTEST_S)) - own
        step = max(least_step, 1 / (self.count + 4))
        self.value = math.exp(own + step * min(max(error, -JUMP), JUMP))
        self.value = min(max(self.value, RATIO_LIMITS[0]), RATIO_LIMITS[1])


class LatencyModel:
    """The learnt speed of one pool's engines."""

    def __init__(self) -> None:
        self.first_token = Regression((START_S, KILO / TOKENS_PER_S, 0.0, 0.0), SHORTEST_S)
        self.token = Regression((STEP_S, 0.0), SHORTEST_S)

    @property
    def trusted(self) -> bool:
        """Whether the model has seen enough reports to be acted on."""
        return self.first_token.count >= TRUSTED_AFTER

    @property
    def prefill_tokens_per_s(self) -> float:
        """Prefill rate of short prompts, on an engine that decodes nothing; 0 while it is unknown."""
        per_kilo = self.first_token.weights[1]
        return KILO / per_kilo if self.first_token.count and per_kilo > 0 else 0.0

    def first_token_s(self, tokens: float, pairs: float, running: int) -> float:
        """Expected time to the first token on an average replica."""
        return self.first_token.weights[0] + self.work_s(tokens, pairs, running)

    def work_s(self, tokens: float, pairs: float, running: int) -> float:
        """The time for which this much prefill keeps an engine busy."""
        _, per_kilo, per_pairs, harm = self.first_token.weights
        return tokens / KILO * per_kilo + pairs / TEN_MILLION * per_pairs + tokens * running / HUNDRED_KILO * harm

    def token_s(self, running: int) -> float:
        """Expected time per token with this many streams, without prompts in between."""
        return self.token.weights[0] + self.token.weights[1] * running / HUNDRED

    @property
    def token_s_per_stream(self) -> float:
        """Increase of each stream's time per token by one more stream."""
        return self.token.weights[1] / HUNDRED

    def saw_first_token(self, observed_s: float, tokens: float, pairs: float, running: int) -> None:
        """Learn from a request with this much work, its own and ahead of it, whose first token took `observed_s`."""
        if running > MAX_RUNNING:
            return
        # not divided by the replica's ratio, because formula and ratio would then drive each other away from 1
        features = (1.0, tokens / KILO, pairs / TEN_MILLION, tokens * running / HUNDRED_KILO)
        self.first_token.learn(features, observed_s)

    def saw_tokens(self, seconds: float, tokens: int, running: int, paused_s: float) -> None:
        """Learn from the duration of a response's tokens after the first, with `running` other streams on average.

        paused_s: the part of the time that the engine spent on prompts.
        """
        if tokens < TELLING_TOKENS or seconds <= 0 or running > MAX_RUNNING:
            return
        share = 1.0 - paused_s / seconds
        if share > MIN_SHARE:
            self.token.learn((1.0, running / HUNDRED), (seconds - paused_s) / tokens, share * share)


def pairs_of(uncached_tokens: int, prompt_tokens: int) -> float:
    """(token, earlier token) pairs of a causal prefill of the last `uncached_tokens` of a prompt."""
    return uncached_tokens * (prompt_tokens - uncached_tokens / 2)
