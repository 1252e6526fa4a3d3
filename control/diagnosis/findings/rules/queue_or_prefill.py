"""The engine takes long until its first event and does not report whether the request waited or was computed.

The anatomy's drill: "dominated by either queue wait or prefill; I would need queue-wait p99 to disambiguate." Changes
that help both come first, and the missing measurement is named. If the engine's own counters have it for all its
requests together, and one of the two clearly dominates, that one is named.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import MIN, dominating, grown, lacking, measured
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Number, Objectives
from control.diagnosis.findings.rules.slow_prefill import workload
from control.diagnosis.findings.untold import StageMeans, stage_means

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "it does nothing for a queue and little for prefill, which compute bounds"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding; TTFT gains next to nothing"),
    WouldNotHelp(Fix.BIGGER_BATCH, "a larger batch lengthens both"),
)
WHICH = (
    "How long do requests wait in the engine's queue (p99), apart from prefill? It decides between admission control "
    "and chunked prefill. SGLang reports it in its metrics (--enable-metrics), the embedded engine with every answer."
)
QUESTIONS = (
    "Are prompts' lengths a tight distribution or a long tail? A long tail makes chunked prefill the first lever.",
    "What is the largest batch, and how often is it full? Full all the time with slow tokens means a full KV.",
    "Do most requests share a system prompt? It decides whether prefix caching is worth it.",
    "Is this objective the one that was promised?",
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the time until the engine's first event, if it is not split."""
    slow = grown(evidence, Measure.ENGINE_UNSPLIT, objectives, Number.TTFT)
    slow = slow or dominating(evidence, Measure.ENGINE_UNSPLIT, objectives)
    if slow is None:
        if measured(evidence, Measure.ENGINE_UNSPLIT) or measured(evidence, Measure.PREFILL):
            return Clear(Cause.QUEUE_OR_PREFILL)
        why = lacking(evidence, Measure.ENGINE_UNSPLIT, "no engine's time was measured")
        return NotEnough(Cause.QUEUE_OR_PREFILL, why or "too few requests of one class")
    means = stage_means(evidence.now)
    if means is not None and means.requests < MIN:
        means = None
    sentences, prefill_fixes = workload(evidence)
    phase, fixes = _split(means, prefill_fixes)
    return Finding(
        cause=Cause.QUEUE_OR_PREFILL,
        phase=phase,
        evidence=(slow.told, *(() if means is None else (means.told,)), *sentences),
        fixes=fixes,
        would_not_help=WOULD_NOT_HELP,
        questions=QUESTIONS if means is not None else (WHICH, *QUESTIONS),
        new=slow.before is not None,
        score=slow.score,
    )


def _split(means: StageMeans | None, prefill_fixes: tuple[Fix, ...]) -> tuple[Phase, tuple[Fix, ...]]:
    """The stage that takes most of the time, and its changes."""
    if means is not None and means.queues:
        return Phase.QUEUE, (Fix.ADMISSION_CONTROL, Fix.MORE_REPLICAS)
    if means is not None and means.computes:
        return Phase.PREFILL, prefill_fixes
    return Phase.QUEUE_OR_PREFILL, (Fix.ADMISSION_CONTROL, Fix.CHUNKED_PREFILL, Fix.PREFIX_CACHING)
