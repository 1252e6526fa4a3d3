"""How far a candidate's predictions are from the reference's, on texts that both read token by token.

KL(reference || candidate) per token measures what rounding changes, independent of the text. How often the likeliest
token stays, and how much worse the text itself is predicted (perplexity ratio), show its effect. Positions of one text
are not independent, so bounds are by text: the ratio estimator of a sample of clusters (Cochran 1977, section 6.3),
with Student's quantile at one degree of freedom fewer than the number of texts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor

from evals.statistics.distributions import student_quantile


class TextDistance(msgspec.Struct, frozen=True):
    """Sums over the positions of one text."""

    text: int
    tokens: int
    kl: float
    """Nats."""
    same_top: int
    """Positions whose likeliest token is the same."""
    surprise: float
    """Surprise of the text's own tokens under the candidate minus that under the reference, in nats."""
    right_before: int
    """Positions whose likeliest token is the text's own, by the reference."""
    right_after: int


class Estimate(msgspec.Struct, frozen=True):
    """A figure per token, with a lower and an upper bound at 95 % confidence each."""

    value: float
    lower: float
    upper: float


class Distance(msgspec.Struct, frozen=True):
    """The distance between a reference and a candidate."""

    kl_per_token: Estimate
    """Nats."""
    same_top: Estimate
    """Share of positions whose likeliest token stays."""
    perplexity_ratio: Estimate
    """The candidate's divided by the reference's; above 1, the candidate predicts the text worse."""
    right: Estimate
    """Share of positions whose likeliest token is the text's own, the candidate's minus the reference's."""
    tokens: int
    texts: int


def compare(text: int, before: Tensor, after: Tensor, said: Tensor) -> TextDistance:
    """before, after: (positions, vocabulary) log probabilities; said: (positions,) the token that follows each one."""
    chosen = said[:, None]
    tops, others = before.argmax(-1), after.argmax(-1)
    return TextDistance(
        text,
        len(said),
        float((before.exp() * (before - after)).sum(dtype=torch.float64)),
        int((tops == others).sum()),
        float((before.gather(1, chosen) - after.gather(1, chosen)).sum(dtype=torch.float64)),
        int((tops == said).sum()),
        int((others == said).sum()),
    )


def distance(parts: Sequence[TextDistance], alpha: float = 0.05) -> Distance:
    """The distance over all texts. alpha: error probability of each bound. Raises ValueError without positions."""
    tokens = sum(part.tokens for part in parts)
    if not tokens:
        raise ValueError("no position was compared")
    kl = _per_token([(part.text, part.kl, part.tokens) for part in parts], alpha)
    same = _per_token([(part.text, part.same_top, part.tokens) for part in parts], alpha)
    surprise = _per_token([(part.text, part.surprise, part.tokens) for part in parts], alpha)
    right = _per_token([(part.text, part.right_after - part.right_before, part.tokens) for part in parts], alpha)
    return Distance(
        msgspec.structs.replace(kl, lower=max(0.0, kl.lower)),
        msgspec.structs.replace(same, lower=max(0.0, same.lower), upper=min(1.0, same.upper)),
        Estimate(*(math.exp(min(value, 700.0)) for value in (surprise.value, surprise.lower, surprise.upper))),
        right,
        tokens,
        len({part.text for part in parts}),
    )


def _per_token(sums: Sequence[tuple[int, float, int]], alpha: float) -> Estimate:
    """sums: (text, sum, tokens) of each passage. With one text the bounds are infinite, as the variance is unknown."""
    totals: dict[int, tuple[float, int]] = {}
    for text, value, tokens in sums:
        before = totals.get(text, (0.0, 0))
        totals[text] = (before[0] + value, before[1] + tokens)
    tokens, count = sum(own for _, own in totals.values()), len(totals)
    mean = sum(value for value, _ in totals.values()) / tokens
    if count < 2:
        return Estimate(mean, -math.inf, math.inf)
    spread = sum((value - mean * own) ** 2 for value, own in totals.values())
    half = student_quantile(alpha, count - 1) * math.sqrt(spread * count / (count - 1)) / tokens
    return Estimate(mean, mean - half, mean + half)
