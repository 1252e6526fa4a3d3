"""When a measure is said to have grown, or to be what spends an objective: the statistics of all rules.

Medians and tails are compared, never means: one request of a minute must not speak for a thousand. Three things must
hold, so that neither noise nor trifles are found:

    enough requests    `LEAST` on both sides; for a tail, five beyond it (`evidence.TAILS`)
    a ratio            1.5 of the median or 2 of the tail: windows of the same traffic differ by less
    an amount          a part of the objective: 10 % of it in the median or 25 % in the tail for what engines do,
                       3 % or 10 % for what the gateway itself does, which should be next to nothing

Without a window before, and where nothing grew, an objective that is missed is still one: then the phase that takes
most of the time is named (the anatomy: "TTFT is a derived metric: you fix it by fixing the phase that dominates it").
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from diagnosis.evidence import Evidence, Quantiles, Slice, Window, same
from diagnosis.measure import BEFORE_FIRST_TOKEN, Measure
from diagnosis.objectives import Objective, Objectives

LEAST = 30
"""Requests for a median."""
MEDIAN = "p50"
RATIOS = {MEDIAN: 1.5}
TAIL_RATIO = 2.0
OF_PROMPT = frozenset({Measure.PREFILL, Measure.ENGINE_UNSPLIT, Measure.TTFT})
"""Depends on the prompt's length: never compared with requests of other lengths."""
NAMES = {
    Measure.TTFT: "the time to first token",
    Measure.TPOT: "the time per token",
    Measure.LONGEST_GAP: "the longest gap between tokens",
    Measure.AUTH: "reading the request and its key",
    Measure.LIMIT: "taking the reservation and opening the journal",
    Measure.ROUTE: "asking the router",
    Measure.WAIT: "waiting in the router's and the engine's queues",
    Measure.PREFILL: "prefill",
    Measure.ENGINE_UNSPLIT: "the engine's queue and prefill, which it does not tell apart,",
    Measure.ENGINE_LINK: "the way to the engine and back, without its queue and prefill,",
    Measure.FIRST_TOKEN: "the time from the engine's first event to text",
    Measure.STREAM: "the time from the engine's end to the client's last byte",
    Measure.CLIENT_STALL: "waiting for the client to read",
}


class Share(msgspec.Struct, frozen=True):
    """Which part of an objective an excess must be, by statistic."""

    median: float
    tail: float


ENGINE = Share(0.10, 0.25)
OURS = Share(0.03, 0.10)


class Number(StrEnum):
    """Which of an objective's numbers a measure spends."""

    TTFT = "ttft_ms"
    TPOT = "tpot_ms"
    LONGEST_GAP = "longest_gap_ms"


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """A measure that is too large, in one group of requests, in milliseconds."""

    label: str
    measure: Measure
    statistic: str
    now: Quantiles
    before: Quantiles | None
    """None: nothing comparable; the objective is missed, and this takes most of the time."""
    excess_ms: float
    objective_ms: float

    @property
    def score(self) -> float:
        """In parts of the objective."""
        return self.excess_ms / self.objective_ms

    @property
    def told(self) -> str:
        """The sentence of evidence."""
        now = f"{self.now.value(self.statistic):,.0f} ms ({self.statistic} of {self.now.n:,} requests)"
        sentence = f"{NAMES[self.measure][:1].upper()}{NAMES[self.measure][1:]} took {now} for {self.label}"
        if self.before is not None:
            before_ms = self.before.value(self.statistic)
            return f"{sentence}; before, {before_ms:,.0f} ms of {self.before.n:,}."
        return f"{sentence}; the objective is {self.objective_ms:,.0f} ms."


def groups(window: Window) -> Iterator[Slice]:
    """By tier and length; a tier as a whole where none of its lengths has enough."""
    for tier in window.tiers:
        classes = [each for each in window.classes if each.tier is tier.tier and each.requests >= LEAST]
        yield from classes or ([tier] if tier.requests >= LEAST else [])


def measured(evidence: Evidence, measure: Measure) -> int:
    """Requests of the largest group that it was measured of."""
    return max((each.measures[measure].n for each in groups(evidence.now) if measure in each.measures), default=0)


def grown(
    evidence: Evidence, measure: Measure, objectives: Objectives, number: Number, least: Share = ENGINE
) -> Excess | None:
    """The group in which the measure grew most since the window before; None: in none of them."""
    found: list[Excess] = []
    for now in groups(evidence.now):
        before = _before(evidence, now, measure)
        if before is not None and measure in now.measures:
            objective_ms = _number(objectives.of(now.tier, now.length), number)
            found += _excesses(now.label, measure, now.measures[measure], before, objective_ms, least)
    return max(found, key=lambda each: each.score, default=None)


def dominating(evidence: Evidence, measure: Measure, objectives: Objectives) -> Excess | None:
    """The group that misses its TTFT and in which this measure takes the largest part of it; None: there is none."""
    found = []
    for now in groups(evidence.now):
        objective_ms = objectives.of(now.tier, now.length).ttft_ms
        statistic = missed_at(now, Measure.TTFT, objective_ms)
        parts = {part: now.measures[part] for part in BEFORE_FIRST_TOKEN if part in now.measures}
        if statistic is None or measure not in parts or parts[measure].n < LEAST:
            continue
        mine_ms = parts[measure].value(statistic)
        if mine_ms >= max(part.value(statistic) for part in parts.values()):
            over_ms = now.measures[Measure.TTFT].value(statistic) - objective_ms
            found.append(
                Excess(
                    label=now.label, measure=measure, statistic=statistic, now=parts[measure], before=None,
                    excess_ms=min(mine_ms, over_ms), objective_ms=objective_ms,
                )
            )  # fmt: skip
    return max(found, key=lambda each: each.score, default=None)


def missing(evidence: Evidence, measure: Measure, objectives: Objectives, number: Number) -> Excess | None:
    """The group that misses this number's objective most; None: all keep it, or have too few requests to tell."""
    found = []
    for now in groups(evidence.now):
        objective_ms = _number(objectives.of(now.tier, now.length), number)
        statistic = missed_at(now, measure, objective_ms)
        if statistic is not None:
            values = now.measures[measure]
            found.append(
                Excess(
                    label=now.label, measure=measure, statistic=statistic, now=values, before=None,
                    excess_ms=values.value(statistic) - objective_ms, objective_ms=objective_ms,
                )
            )  # fmt: skip
    return max(found, key=lambda each: each.score, default=None)


def missed_at(now: Slice, measure: Measure, objective_ms: float) -> str | None:
    """The statistic at which a slice misses an objective: its tail, or its median where too few know a tail."""
    values = now.measures.get(measure)
    if values is None or values.n < LEAST:
        return None
    statistic = values.tail or MEDIAN
    return statistic if values.value(statistic) > objective_ms else None


def _before(evidence: Evidence, now: Slice, measure: Measure) -> Quantiles | None:
    """What to compare with: the same class, or all of its tier for what does not depend on prompts."""
    if evidence.before is None:
        return None
    candidates = [same(evidence.before.classes, now) or same(evidence.before.tiers, now)]
    if measure not in OF_PROMPT:
        candidates.append(next((each for each in evidence.before.tiers if each.tier is now.tier), None))
    for candidate in candidates:
        values = None if candidate is None else candidate.measures.get(measure)
        if values is not None and values.n >= LEAST:
            return values
    return None


def _excesses(
    label: str, measure: Measure, now: Quantiles, before: Quantiles, objective_ms: float, least: Share
) -> Iterator[Excess]:
    if now.n < LEAST:
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


def _number(objective: Objective, number: Number) -> float:
    return float(getattr(objective, number.value))
