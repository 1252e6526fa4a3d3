"""Requests wait before any computation.

The anatomy's tree, branch "queue-bound": bursts need admission control, a steady load needs replicas, and long outputs
that block the batch need a smaller one. The program: "queue time is not a kernel problem, it is a scheduling problem."
If nearly all waiting requests are one organization's, the finding names it: pace it before adding anything.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import Excess, dominating, grown, lacking
from control.diagnosis.findings.concentration import refused_beyond_shares, waiting
from control.diagnosis.findings.evidence import WAITED_MS, Evidence, Slice
from control.diagnosis.findings.failing import failing_part
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives
from control.diagnosis.findings.rules.limits import floods

SHED = ("overloaded",)
SHED_SHARE, SHED_LEAST = 0.01, 5
"""At 0.5 % dropped, the program no longer relies on admission control alone; twice that is no accident."""
BURSTY = 3.0
"""A Poisson process has 1; three times its variance is a pattern, not chance."""
LONG_OUTPUTS = 2.0
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the model never runs while a request waits"),
    WouldNotHelp(Fix.FASTER_ATTENTION, "faster kernels move the median, not the tail of waiting requests"),
    WouldNotHelp(Fix.BIGGER_BATCH, "beyond the knee a larger batch slows every request in it, and the queue stays"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding; TTFT gains next to nothing (30 to 60 ms)"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the router's and the engine's queues, and by requests shed for lack of room."""
    waited = grown(evidence, Measure.WAIT, objectives, Number.TTFT) or dominating(evidence, Measure.WAIT, objectives)
    shed = told_shed(evidence)
    if waited is None and shed is None:
        why = lacking(evidence, Measure.WAIT, "no waits were measured")
        return Clear(Cause.QUEUE) if why is None else NotEnough(Cause.QUEUE, why)
    top = waiting(evidence.now)
    named = top.told(f"waited {WAITED_MS:.0f} ms and longer") if waited and top and top.is_concentrated else None
    kind, fixes = _kind(evidence)
    if named is not None:
        fixes = (Fix.PACE_REQUESTS, *fixes)
    return Finding(
        cause=Cause.QUEUE,
        phase=Phase.QUEUE,
        evidence=tuple(each for each in (waited and waited.told, named, shed, kind) if each),
        fixes=fixes,
        would_not_help=WOULD_NOT_HELP,
        new=waited is None or waited.before is not None,
        score=_score(waited),
    )


def _score(waited: Excess | None) -> float:
    # a shed request got no response at all: as bad as an objective spent twice
    return 2.0 if waited is None else waited.score


def told_shed(evidence: Evidence) -> str | None:
    """A sentence about refusals for lack of room, including those beyond shares unless they are a flood; None if there
    are too few."""
    now = evidence.now
    over_share = 0 if floods(now) else now.over_share
    count = over_share + sum(failure.count for failure in now.failures if failure.code in SHED)
    part = failing_part(now, SHED, SHED_SHARE, SHED_LEAST)
    if part is None and (count < SHED_LEAST or count < SHED_SHARE * now.requests):
        return None
    sentence = f"{count:,} of {now.requests:,} requests were shed for lack of room"
    where = "" if part is None else f" {part.told}"
    if not over_share:
        return f"{sentence}.{where}"
    most = refused_beyond_shares(now)
    owner = f" (most: {most.organization}, {most.count:,})" if most else ""
    return f"{sentence}, {over_share:,} of them beyond their organization's share{owner}.{where}"


def _kind(evidence: Evidence) -> tuple[str, tuple[Fix, ...]]:
    now, before = evidence.now, evidence.before
    if (outputs := _outputs(now.tiers)) is not None and before is not None:
        earlier = _outputs(before.tiers)
        if earlier and outputs >= LONG_OUTPUTS * earlier:
            sentence = (
                f"Answers have become longer: {outputs:,.0f} tokens (p50), before {earlier:,.0f}; they hold the batch."
            )
            return sentence, (Fix.SMALLER_BATCH, Fix.ADMISSION_CONTROL, Fix.MORE_REPLICAS)
    if now.dispersion is not None and now.dispersion >= BURSTY:
        sentence = (
            f"Requests arrive in bursts: the variance of arrivals per second is {now.dispersion:.1f} times their mean."
        )
        return sentence, (Fix.ADMISSION_CONTROL, Fix.MORE_REPLICAS)
    return "Requests arrive steadily: the load is more than the replicas can serve.", (
        Fix.MORE_REPLICAS,
        Fix.ADMISSION_CONTROL,
    )


def _outputs(tiers: tuple[Slice, ...]) -> float | None:
    largest = max(tiers, key=lambda each: each.requests, default=None)
    values = None if largest is None else largest.measures.get(Measure.COMPLETION_TOKENS)
    return None if values is None else values.p50
