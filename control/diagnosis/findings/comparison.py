"""Decides whether a measure has grown or misses an objective: the statistics of all rules.

The comparison uses medians and tails, never means: one request of a minute must not outweigh a thousand others. Three
conditions exclude noise and trifles:

    enough requests    `MIN` on both sides; for a tail, five beyond it (`evidence.TAILS`)
    a ratio            1.5 of the median or 2 of the tail: windows of the same traffic differ by less
    an amount          a part of the objective: 10 % of it in the median or 25 % in the tail for engines' work, 3 % or
                       10 % for the gateway's own work, which should take almost no time

Without an earlier window or without growth, a missed objective still counts: more requests are beyond it than its
target allows, and not by chance. Then the phase that takes most of the time of those requests is named (the anatomy:
"TTFT is a derived metric: you fix it by fixing the phase that dominates it").
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, lgamma, log, log1p, sqrt
from statistics import NormalDist

import msgspec

from control.diagnosis.findings.evidence import Evidence, Quantiles, Slice, Window, same
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

MIN = 30
"""Requests for a median."""
FEWEST, CHANCE = 5, 0.0001
"""The fewest requests beyond an objective that count, and the largest probability at which chance is ruled out."""
WIDE = 10_000.0
"""The variance above which the normal distribution replaces the binomial one."""
_SURE = NormalDist().inv_cdf(1.0 - CHANCE)
"""Standard deviations beyond the mean."""
NEGLIGIBLE = 1e-12
MEDIAN = "p50"
RATIOS = {MEDIAN: 1.5}
TAIL_RATIO = 2.0
OF_PROMPT = frozenset({Measure.PREFILL, Measure.ENGINE_UNSPLIT, Measure.TTFT})
"""Measures that depend on the prompt's length and are never compared across length classes."""
NAMES = {
    Measure.TTFT: "the time to first token",
    Measure.TPOT: "the time per token",
    Measure.LONGEST_GAP: "the longest gap between tokens",
    Measure.AUTH: "reading the request and its key",
    Measure.LIMIT: "taking the reservation and opening the journal",
    Measure.ROUTE: "asking the router",
    Measure.WAIT: "waiting in the router's and the engine's queues",
    Measure.PREFILL: "prefill",
    Measure.ENGINE_UNSPLIT: "the engine's queue and prefill, which it reports together,",
    Measure.GRAMMAR: "compiling the grammar that the output must keep",
    Measure.ENGINE_LINK: "the way to the engine and back, without its queue and prefill,",
    Measure.FIRST_TOKEN: "the time from the engine's first event to text",
    Measure.STREAM: "the time from the engine's end to the client's last byte",
    Measure.CLIENT_STALL: "waiting for the client to read",
}


class Share(msgspec.Struct, frozen=True):
    """The least excess of each statistic, in parts of the objective."""

    median: float
    tail: float


ENGINE = Share(0.10, 0.25)
OURS = Share(0.03, 0.10)


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """An excessive measure in one group of requests, in milliseconds."""

    label: str
    measure: Measure
    statistic: str
    now: Quantiles
    before: Quantiles | None
    """None without a comparison: the objective is missed, and this measure takes most of the time."""
    excess_ms: float
    objective_ms: float
    beyond: int = 0
    """Requests that miss the objective, if it is missed."""
    may: float = 0.0
    """The part of the requests that may miss it."""
    late_ms: float | None = None
    """Mean of the measure over these requests; None if the measure itself misses the objective."""

    @property
    def score(self) -> float:
        """Excess in parts of the objective."""
        return self.excess_ms / self.objective_ms

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        now = f"{self.now.value(self.statistic):,.0f} ms ({self.statistic} of {self.now.n:,} requests)"
        sentence = f"{NAMES[self.measure][:1].upper()}{NAMES[self.measure][1:]} took {now} for {self.label}"
        if self.before is not None:
            before_ms = self.before.value(self.statistic)
            return f"{sentence}; before, {before_ms:,.0f} ms of {self.before.n:,}."
        late = f"{self.beyond:,} requests beyond the objective of {self.objective_ms:,.0f} ms"
        if self.late_ms is not None:
            return f"{sentence}, and {self.late_ms:,.0f} ms on average of the {late} ({self.may * 100:.4g} % may be)."
        return f"{sentence}; there are {late} ({self.may * 100:.4g} % may be)."


def groups(window: Window) -> Iterator[Slice]:
    """The slices by tier and length, or a whole tier if none of its lengths has enough requests."""
    for tier in window.tiers:
        classes = [each for each in window.classes if each.tier is tier.tier and each.requests >= MIN]
        yield from classes or ([tier] if tier.requests >= MIN else [])


def measured(evidence: Evidence, measure: Measure) -> int:
    """The number of requests with this measure in the group that has the most."""
    return max((each.measures[measure].n for each in groups(evidence.now) if measure in each.measures), default=0)


def grown(
    evidence: Evidence, measure: Measure, objectives: Objectives, number: Number, least: Share = ENGINE
) -> Excess | None:
    """The group in which the measure grew most since the earlier window; None if it grew in none."""
    found: list[Excess] = []
    for now in groups(evidence.now):
        before = _before(evidence, now, measure)
        if before is not None and measure in now.measures:
            objective_ms = objectives.scale_ms(now.tier, now.length, number)
            found += _excesses(now.label, measure, now.measures[measure], before, objective_ms, least)
    return max(found, key=lambda each: each.score, default=None)


def dominating(evidence: Evidence, measure: Measure, objectives: Objectives) -> Excess | None:
    """The group that misses its TTFT most, with this measure as its late requests' longest phase; None without any."""
    found = []
    for now in groups(evidence.now):
        over = _missed(now, Measure.TTFT, objectives, Number.TTFT)
        if over is None or measure not in now.measures or measure not in now.late_ms:
            continue
        mine_ms = now.late_ms[measure]
        if mine_ms >= max(now.late_ms.values()):
            found.append(
                msgspec.structs.replace(
                    over, measure=measure, now=now.measures[measure], late_ms=mine_ms,
                    excess_ms=min(mine_ms, over.excess_ms),
                )
            )  # fmt: skip
    return max(found, key=lambda each: each.score, default=None)


def missing(evidence: Evidence, measure: Measure, objectives: Objectives, number: Number) -> Excess | None:
    """The group that misses this number's objective most; None if none surely misses it or nothing is promised."""
    found = (_missed(now, measure, objectives, number) for now in groups(evidence.now))
    return max((each for each in found if each is not None), key=lambda each: each.score, default=None)


def surely_more(count: int, n: int, share: float) -> bool:
    """Whether a count out of n significantly exceeds a share, by the binomial distribution. For large n, such as the
    millions of a busy week, it uses the normal one, whose tail is the same there."""
    if count < FEWEST or count <= share * n:
        return False
    if share <= 0.0:
        return True
    variance = n * share * (1 - share)
    if variance > WIDE:
        return count - share * n > _SURE * sqrt(variance)
    ways = lgamma(n + 1) - lgamma(count + 1) - lgamma(n - count + 1)
    term, tail = exp(ways + count * log(share) + (n - count) * log1p(-share)), 0.0
    # Terms decrease from here on, and the rest is too small to move the tail past CHANCE.
    for k in range(count, n + 1):
        tail += term
        if tail >= CHANCE or term < NEGLIGIBLE:
            break
        term *= (n - k) / (k + 1) * share / (1 - share)
    return tail < CHANCE


def lacking(evidence: Evidence, measure: Measure, absent: str, *, growth_alone: bool = False) -> str | None:
    """Why a measure cannot be judged; None if it can.

    absent: the reason if no request has it. growth_alone: whether it has no objective that it could miss.
    """
    n = measured(evidence, measure)
    requests = max((each.requests for each in evidence.now.tiers), default=0)
    if requests < MIN or 0 < n < MIN:
        return f"{n or requests:,} requests, {MIN} are needed; `slipstream requests show ID` for a single one"
    if not n:
        return absent
    if growth_alone and not any(_before(evidence, now, measure) for now in groups(evidence.now)):
        return f"only growth shows it, and the window before has fewer than {MIN} such requests"
    return None


def not_judged(window: Window) -> tuple[str, ...]:
    """Classes with too few requests for a judgment of their own."""
    labels = {each.label for each in groups(window)}
    few = [each for each in window.classes if each.label not in labels]
    return tuple(f"{each.label} ({each.requests:,} of {MIN} requests)" for each in few)


def _missed(now: Slice, measure: Measure, objectives: Objectives, number: Number) -> Excess | None:
    promised_ms = objectives.promised_ms(now.tier, now.length, number)
    values = now.measures.get(measure)
    may = 1.0 - objectives.of(now.tier, now.length).target
    beyond = now.beyond.get(measure, 0)
    if promised_ms is None or values is None or values.n < MIN or not surely_more(beyond, values.n, may):
        return None
    statistic = values.tail or "p90"
    return Excess(
        label=now.label, measure=measure, statistic=statistic, now=values, before=None, beyond=beyond, may=may,
        excess_ms=max(values.value(statistic) - promised_ms, 0.0), objective_ms=promised_ms,
    )  # fmt: skip


def _before(evidence: Evidence, now: Slice, measure: Measure) -> Quantiles | None:
    """The earlier values of the same class, or of its whole tier for measures that do not depend on prompts."""
    if evidence.before is None:
        return None
    candidates = [same(evidence.before.classes, now) or same(evidence.before.tiers, now)]
    if measure not in OF_PROMPT:
        candidates.append(next((each for each in evidence.before.tiers if each.tier is now.tier), None))
    for candidate in candidates:
        values = None if candidate is None else candidate.measures.get(measure)
        if values is not None and values.n >= MIN:
            return values
    return None


def _excesses(
    label: str, measure: Measure, now: Quantiles, before: Quantiles, objective_ms: float, least: Share
) -> Iterator[Excess]:
    if now.n < MIN:
        return
    tail = (now if now.n <= before.n else before).tail
    for statistic, share in ((MEDIAN, least.median), (tail, least.tail)):
        if statistic is None:
            continue
        excess_ms = now.value(statistic) - before.value(statistic)
        ratio = RATIOS.get(statistic, TAIL_RATIO)
        if excess_ms >= share * objective_ms and now.value(statistic) >= ratio * before.value(statistic):
            yield Excess(
                label=label, measure=measure, statistic=statistic, now=now, before=before, excess_ms=excess_ms,
                objective_ms=objective_ms,
            )  # fmt: skip
