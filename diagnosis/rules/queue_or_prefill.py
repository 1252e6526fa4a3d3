"""The engine takes long before its first event and does not tell whether the request waited or was computed.

The anatomy's drill: "dominated by either queue wait or prefill; I would need queue-wait p99 to disambiguate." What
helps both is proposed first, and what would tell is asked for.
"""

from __future__ import annotations

from diagnosis.comparison import dominating, grown, lacking, measured
from diagnosis.evidence import Evidence
from diagnosis.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from diagnosis.fix import Fix
from diagnosis.measure import Measure
from diagnosis.objectives import Number, Objectives
from diagnosis.rules.slow_prefill import workload

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "it does nothing for a queue and little for prefill, which compute bounds"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "it speeds up decoding; TTFT gains next to nothing"),
    WouldNotHelp(Fix.BIGGER_BATCH, "a larger batch lengthens both"),
)
QUESTIONS = (
    "How long do requests wait in the engine's queue (p99), apart from prefill? It decides between admission control "
    "and chunked prefill. SGLang tells it in its metrics (--enable-metrics), the embedded engine with every answer.",
    "Are prompts' lengths a tight distribution or a long tail? A long tail makes chunked prefill the first lever.",
    "What is the largest batch, and how often is it full? Full all the time with slow tokens means a full KV.",
    "Do most requests share a system prompt? It decides whether prefix caching is worth it.",
    "Is this objective the one that was promised?",
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """By the time until the engine's first event, where nothing splits it."""
    slow = grown(evidence, Measure.ENGINE_UNSPLIT, objectives, Number.TTFT)
    slow = slow or dominating(evidence, Measure.ENGINE_UNSPLIT, objectives)
    if slow is None:
        if measured(evidence, Measure.ENGINE_UNSPLIT) or measured(evidence, Measure.PREFILL):
            return Clear(Cause.QUEUE_OR_PREFILL)
        why = lacking(evidence, Measure.ENGINE_UNSPLIT, "no engine's time was measured")
        return NotEnough(Cause.QUEUE_OR_PREFILL, why or "too few requests of one class")
    told, _ = workload(evidence)
    return Finding(
        cause=Cause.QUEUE_OR_PREFILL,
        phase=Phase.QUEUE_OR_PREFILL,
        evidence=(slow.told, *told),
        fixes=(Fix.ADMISSION_CONTROL, Fix.CHUNKED_PREFILL, Fix.PREFIX_CACHING),
        would_not_help=WOULD_NOT_HELP,
        questions=QUESTIONS,
        new=slow.before is not None,
        score=slow.score,
    )
