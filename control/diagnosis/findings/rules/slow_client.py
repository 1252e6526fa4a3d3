"""Clients read too slowly: their connections accept no more data, and the gateway waits for them."""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives

MIN = 20
"""Requests of one organization."""
STALL_MS = 250.0
"""A socket's buffer and a busy machine do not explain more."""
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.MORE_REPLICAS, "the engine had already generated the tokens that the client does not read"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "faster tokens fill the same full buffer"),
    WouldNotHelp(Fix.SMALLER_BATCH, "the engine had already generated the tokens that the client does not read"),
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the engine had already generated the tokens that the client does not read"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by how long gateways wait for connections to accept data, per organization: its clients are alike."""
    tenants = evidence.now.tenants or evidence.now.tiers
    stalls = {each.label: each.measures.get(Measure.CLIENT_STALL) for each in tenants}
    known = {label: each for label, each in stalls.items() if each is not None and each.n >= MIN}
    found = [
        (each.value(each.tail or "p50"), label)
        for label, each in known.items()
        if each.value(each.tail or "p50") >= STALL_MS
    ]
    if not found:
        return (
            Clear(Cause.SLOW_CLIENT) if known else NotEnough(Cause.SLOW_CLIENT, "too few answers to judge clients by")
        )
    stalled_ms, label = max(found)
    values = known[label]
    return Finding(
        cause=Cause.SLOW_CLIENT,
        phase=Phase.CLIENT,
        evidence=(
            f"Gateways waited {stalled_ms:,.0f} ms ({values.tail or 'p50'} of {values.n:,} requests) for the clients "
            f"of {label} to read.",
        ),
        fixes=(Fix.READ_FASTER,),
        would_not_help=WOULD_NOT_HELP,
        score=stalled_ms / objectives.of(None, None).ttft_ms,
    )
