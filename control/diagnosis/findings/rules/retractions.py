"""The engine takes memory back from running requests and restarts them. Only platform failures come before this.

The anatomy's tree, branch "both": "if the server is silently restarting requests, every metric is corrupt. Fix this
before doing anything else." Waits, prefills and gaps of such a window include requests that were computed twice.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import MIN
from control.diagnosis.findings.evidence import EnginePage, Evidence, Slice
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.untold import retracting_pages

SHARE, FEWEST = 0.01, 3
"""One restarted request in a hundred already decides every p99."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.BIGGER_BATCH, "the memory does not suffice for more running requests"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "drafts take KV memory, too"),
    WouldNotHelp(Fix.CHUNKED_PREFILL, "it schedules the compute; the shortage is in memory"),
    WouldNotHelp(Fix.FASTER_ATTENTION, "it speeds up work that is discarded afterwards"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the number of restarted requests, or by the counters of engines whose responses do not report it."""
    known = sum(each.retractions_known for each in evidence.now.tiers)
    retracted = sum(each.retracted for each in evidence.now.tiers)
    pages = retracting_pages(evidence.now)
    ended, retractions = sum(page.requests for page in pages), sum(page.retractions for page in pages)
    sentences = []
    if _ill(retracted, known):
        sentences += [
            f"Of {known:,} requests whose engine reports it, {retracted:,} ({retracted / known:.0%}) were restarted "
            "because KV memory ran out.",
            *_where(evidence.now.replicas),
        ]
    if _ill(retractions, ended):
        sentences += [
            f"By their own counters, engines restarted requests {retractions:,} times while {ended:,} ended, "
            "because KV memory ran out.",
            *_where_by_pages(pages),
        ]
    if sentences:
        return Finding(
            cause=Cause.RETRACTIONS,
            phase=Phase.ENGINE,
            evidence=tuple(sentences),
            fixes=(Fix.SMALLER_BATCH, Fix.MORE_KV_MEMORY, Fix.KV_QUANTIZATION, Fix.MORE_REPLICAS),
            would_not_help=WOULD_NOT_HELP,
        )
    if known + ended < MIN:
        return NotEnough(Cause.RETRACTIONS, f"{known + ended} requests' engines reported whether they were restarted")
    return Clear(Cause.RETRACTIONS)


def _ill(count: int, requests: int) -> bool:
    return count >= FEWEST and count >= SHARE * requests


def _where_by_pages(pages: tuple[EnginePage, ...]) -> tuple[str, ...]:
    most = max(pages, key=lambda each: each.retractions)
    return (f"Most on {most.pool}, {most.replica_id}: {most.retractions:,}.",)


def _where(replicas: tuple[Slice, ...]) -> tuple[str, ...]:
    most = max(replicas, key=lambda each: each.retracted, default=None)
    return () if most is None or not most.retracted else (f"Most on {most.label}: {most.retracted:,}.",)
