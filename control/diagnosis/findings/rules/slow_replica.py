"""One replica of a pool is slow and the others are not: the cause is its machine, not the load or the model.

Averages over the pool hide it or look like slow decoding everywhere. The rule compares medians of the same tier, of
replicas that served enough requests and computed similar prompts.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from control.diagnosis.findings.evidence import Evidence, Slice, same
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives

MIN = 6
"""Fewer than other medians need: routing by prefix sends some replicas few requests, and a slow one fewer still."""
RATIO, SPENT = 1.5, 0.25
"""The least ratio to the others' median, and the least excess in parts of the objective."""
GREW = 0.1
"""Growth in parts of the objective from which the other replicas have the same problem."""
ALIKE = 1.5
"""The largest ratio of computed prompt tokens, without cached ones, by medians."""
MEASURES = ((Measure.TPOT, "a token"), (Measure.PREFILL, "prefill"), (Measure.ENGINE_UNSPLIT, "the first event"))
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "the other replicas run the same model as fast as ever"),
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the other replicas run the same model as fast as ever"),
    WouldNotHelp(Fix.SMALLER_BATCH, "the batch is as large on the replicas that are fast"),
    WouldNotHelp(Fix.MORE_REPLICAS, "the slow replica stays, and its requests wait"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by each replica's medians, compared with the rest of its pool."""
    pools = list(_pools(evidence.now.replicas))
    if not pools:
        return NotEnough(Cause.SLOW_REPLICA, "no pool has two replicas with enough requests")
    found = []
    for pool in pools:
        for measure, noun in MEASURES:
            for slow in pool:
                others = [each for each in pool if each is not slow]
                excess = _excess(slow, others, measure, objectives)
                if excess and not _slowed(others, evidence, objectives):
                    found.append((excess, slow, others, measure, noun))
    if not found:
        return Clear(Cause.SLOW_REPLICA)
    score, slow, others, measure, noun = max(found, key=lambda each: each[0])
    return Finding(
        cause=Cause.SLOW_REPLICA,
        phase=Phase.DECODE if measure is Measure.TPOT else Phase.PREFILL,
        evidence=(
            f"{slow.replica_id} of the pool {slow.pool} needs {slow.measures[measure].p50:,.1f} ms for {noun} (p50 of "
            f"{slow.measures[measure].n:,}); the {len(others)} other replicas need "
            f"{_typical(others, measure):,.1f} ms.",
        ),
        fixes=(Fix.DRAIN_REPLICA,),
        would_not_help=WOULD_NOT_HELP,
        score=score,
    )


def _pools(replicas: tuple[Slice, ...]) -> Iterator[list[Slice]]:
    """At least two replicas with enough requests, by tier and pool."""
    known = [each for each in replicas if each.requests >= MIN]
    for tier, pool in sorted({(each.tier or "", each.pool or "") for each in known}):
        members = [each for each in known if (each.tier or "", each.pool or "") == (tier, pool)]
        if len(members) > 1:
            yield members


def _excess(slow: Slice, others: list[Slice], measure: Measure, objectives: Objectives) -> float:
    """The excess in parts of the objective; 0 if the replica is not slower."""
    mine = slow.measures.get(measure)
    typical = _typical(others, measure)
    if mine is None or mine.n < MIN or typical is None:
        return 0.0
    score = (mine.p50 - typical) / _objective_ms(slow, measure, objectives)
    if mine.p50 < RATIO * typical or score < SPENT:
        return 0.0
    if measure is not Measure.TPOT and _computed(slow) > ALIKE * max(median(map(_computed, others)), 1.0):
        return 0.0
    return score


def _typical(others: list[Slice], measure: Measure) -> float | None:
    known = [each.measures[measure].p50 for each in others if measure in each.measures]
    return median(known) if known else None


def _computed(one: Slice) -> float:
    """Tokens of a typical prompt that were not cached, as far as is known."""
    prompt, cached = one.measures.get(Measure.PROMPT_TOKENS), one.measures.get(Measure.CACHED_TOKENS)
    return 0.0 if prompt is None else max(prompt.p50 - (0.0 if cached is None else cached.p50), 0.0)


def _slowed(others: list[Slice], evidence: Evidence, objectives: Objectives) -> bool:
    """Whether most of the other replicas became slower, too, in any measure; then it is not one replica's problem."""
    if evidence.before is None:
        return False
    pairs = [(each, same(evidence.before.replicas, each)) for each in others]
    slower = [
        any(_grew(now, before, measure, objectives) for measure, _ in MEASURES)
        for now, before in pairs
        if before is not None
    ]
    return bool(slower) and sum(slower) * 2 > len(slower)


def _grew(now: Slice, before: Slice, measure: Measure, objectives: Objectives) -> bool:
    if measure not in now.measures or measure not in before.measures:
        return False
    now_ms, before_ms = now.measures[measure].p50, before.measures[measure].p50
    return now_ms >= RATIO * before_ms and now_ms - before_ms >= GREW * _objective_ms(now, measure, objectives)


def _objective_ms(one: Slice, measure: Measure, objectives: Objectives) -> float:
    return objectives.scale_ms(one.tier, None, Number.TPOT if measure is Measure.TPOT else Number.TTFT)
