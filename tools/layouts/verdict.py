"""Chooses a model's layout from completions of the same lines in each layout. Pure.

The present layout stays unless another one is proved better, or proved hardly worse at no more than half the cost per
keystroke. Each other layout is compared with the present one by a lower bound. All bounds together have the given
confidence (Bonferroni), so that trying more layouts finds no better one by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean, median

import msgspec

from evals.gate import SliceRule, lower_bound, upper_bound
from evals.statistics.paired import clustered, flips

ALLOWED_LOSS = 0.1
"""Share of the present layout's exact lines that a cheaper layout may lose."""
CHEAPER = 0.5
"""A cheaper layout computes at most this share of the present one's tokens for a keystroke."""


class Answers(msgspec.Struct, frozen=True):
    """The results of a layout's requests."""

    exact: Sequence[float]
    """1 for each line that was completed exactly, else 0."""
    similarity: Sequence[float]
    keys_first_s: Sequence[float]
    """Time to the first token of each keystroke after the first."""
    keys_computed: Sequence[int]
    """Uncached prompt tokens of each keystroke after the first; empty if unknown."""


class Reason(StrEnum):
    """Why a layout is chosen."""

    BETTER = "better"
    CHEAPER = "cheaper"
    STAYS = "stays"


class Standing(msgspec.Struct, frozen=True):
    """One layout's figures. Shares are 0 to 1."""

    layout: str
    exact: float
    similarity: float
    first_token_ms: float | None
    """Median over keystrokes; None if no keystroke was replayed."""
    computed_tokens: float | None
    """Mean prompt tokens computed per keystroke. Not the median: within a healed word most keystrokes compute nothing,
    and the next keystroke computes what they skipped. None without keystrokes or reported cached tokens."""
    difference: float | None = None
    """Share of exact lines minus that of the present layout, for which it is None."""
    lower: float | None = None
    upper: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    """The chosen layout, and every layout's figures, the best first."""

    layout: str
    present: str
    reason: Reason
    confidence: float
    lines: int
    files: int
    standings: tuple[Standing, ...]

    def standing(self, layout: str) -> Standing:
        """A layout's figures."""
        return next(one for one in self.standings if one.layout == layout)


def judge(present: str, answers: Mapping[str, Answers], files: Sequence[str], confidence: float) -> Verdict:
    """files: each line's file, a cluster. confidence: probability that no layout is wrongly chosen, 0 to 1.

    Raises ValueError without lines.
    """
    level = (1.0 - confidence) / max(1, len(answers) - 1)
    standings = [_standing(name, answers, present, files, level) for name in answers]
    own = next(one for one in standings if one.layout == present)
    chosen, reason = _chosen(own, standings)
    standings.sort(key=lambda one: (-one.exact, -one.similarity, one.layout))
    return Verdict(chosen, present, reason, confidence, len(files), len(set(files)), tuple(standings))


def _chosen(own: Standing, standings: Sequence[Standing]) -> tuple[str, Reason]:
    others = [(one, one.lower) for one in standings if one.lower is not None]
    better = [one for one, lower in others if lower > 0.0]
    if better:
        return max(better, key=lambda one: (one.exact, -(one.computed_tokens or 0.0))).layout, Reason.BETTER
    cheaper = [
        (one.computed_tokens, one)
        for one, lower in others
        if lower > -ALLOWED_LOSS * own.exact
        and one.computed_tokens is not None
        and own.computed_tokens is not None
        and one.computed_tokens <= CHEAPER * own.computed_tokens
    ]
    if cheaper:
        return min(cheaper, key=lambda pair: (pair[0], -pair[1].exact))[1].layout, Reason.CHEAPER
    return own.layout, Reason.STAYS


def _standing(name: str, answers: Mapping[str, Answers], present: str, files: Sequence[str], level: float) -> Standing:
    found = answers[name]
    standing = Standing(
        name,
        fmean(found.exact),
        fmean(found.similarity),
        median(found.keys_first_s) * 1e3 if found.keys_first_s else None,
        fmean(found.keys_computed) if found.keys_computed else None,
    )
    if name == present:
        return standing
    gains = [one - other for one, other in zip(found.exact, answers[present].exact, strict=True)]
    seen, counted = clustered(zip(files, gains, strict=True)), flips(gains)
    rare = 1.0 + (seen.cluster_items - 1.0) * SliceRule().correlation
    lower = lower_bound(seen, counted, level, rare)
    return msgspec.structs.replace(standing, difference=seen.mean, lower=lower, upper=upper_bound(seen, counted, level))
