"""Prices of an engine's step, learnt from its steps: a modelled engine takes them in place of a data sheet."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.stepped_engine import Step

PASSES = 4
MIN_SHARE = 0.05
"""A share of the mean step's time: a shorter step weighs no more than one of this length."""


FEW = 8
"""Streams up to which reading the weights hides the arithmetic; beyond, a step has a fixed extra cost and one for each
further stream."""


class StepPrices:
    """Seconds per part of a step, with the methods of `engines.performance.roofline.StepTimes`."""

    kv_capacity_tokens = 1 << 24

    def __init__(self, prices: Sequence[float]) -> None:
        self.prompt_step_s, self.token_s, self.pair_s, self.decode_step_s, self.stream_s = prices[:5]
        self.read_s_per_token, self.crowd_s, self.crowd_step_s = prices[5:]

    def step_s(self, prefill_tokens: int, prefill_pairs: float, sequences: int, context_tokens: int) -> float:
        price = self.stream_s * sequences + self.read_s_per_token * context_tokens
        price += self.crowd_s * max(sequences - FEW, 0)
        if prefill_tokens:
            return price + self.prompt_step_s + self.token_s * prefill_tokens + self.pair_s * prefill_pairs
        return price + self.decode_step_s + (self.crowd_step_s if sequences > FEW else 0.0)

    def decode_s(self, sequences: int, context_tokens: int) -> float:
        return self.step_s(0, 0.0, sequences, context_tokens)

    def decode_run_s(self, steps: int, sequences: int, context_tokens: int) -> float:
        grown = sequences * steps * (steps - 1) / 2
        return steps * self.decode_s(sequences, context_tokens) + self.read_s_per_token * grown


def learnt(steps: Sequence[Step]) -> StepPrices:
    """Fit prices by least squares on errors relative to the fitted time, none below 0, with the sum of all steps as
    measured.

    With errors relative to the measured time, lucky steps would weigh most, and all prices would be too low.
    """
    features = np.array([_features(step) for step in steps])
    times = np.array([step.taken_s for step in steps])
    scale = np.full(len(times), times.mean())
    prices = np.zeros(features.shape[1])
    for _ in range(PASSES):
        prices = _not_negative(features / scale[:, None], times / scale)
        scale = np.maximum(features @ prices, MIN_SHARE * times.mean())
    fitted = features @ prices
    return StepPrices([float(price) for price in prices * (times.sum() / fitted.sum())])


def _features(step: Step) -> list[float]:
    prompt = float(step.prompt_tokens > 0)
    crowd = max(step.streams - FEW, 0)
    return [
        prompt, step.prompt_tokens, step.prompt_pairs, 1.0 - prompt, step.streams, step.context_tokens, crowd,
        (1.0 - prompt) * (crowd > 0),
    ]  # fmt: skip


def _not_negative(features: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Least squares without negative weights: columns with a negative weight are left out, one at a time."""
    live = list(range(features.shape[1]))
    while True:
        weights, *_ = np.linalg.lstsq(features[:, live], times, rcond=None)
        worst = int(np.argmin(weights))
        if weights[worst] >= 0:
            break
        del live[worst]
    found = np.zeros(features.shape[1])
    found[live] = weights
    return found
