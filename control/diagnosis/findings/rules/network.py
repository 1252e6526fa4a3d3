"""A proxy between the gateway and the client delays events. The gateway cannot see it, because the proxy reads fast.

The program: "often neglected, easy to find 100 ms here"; the anatomy: a buffering proxy can quietly become 200 ms. Only
an audit of the path (`slipstream tools audit-stream`) shows it, so the rule does not judge without one.
"""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives

WOULD_NOT_HELP = (
    WouldNotHelp(Fix.MORE_REPLICAS, "the gateway had sent the tokens"),
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "tokens that are held back gain nothing from faster decoding"),
    WouldNotHelp(Fix.CHUNKED_PREFILL, "the gateway had sent the tokens"),
    WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the gateway had sent the tokens"),
)


WOULD_NOT_HELP_KEPT_OUT = (
    WouldNotHelp(Fix.MORE_REPLICAS, "a client that rejects the certificate sends no request"),
    WouldNotHelp(Fix.RAISE_LIMIT, "a client that rejects the certificate sends no request"),
)
NOT_AUDITED = (
    "the path to the client was not audited: run `slipstream tools audit-stream URL` where the client is, or ask with "
    "`slipstream diagnose --url URL`"
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by an audit's findings that delay events or keep clients out."""
    audit = evidence.audit
    if audit is None:
        return NotEnough(Cause.NETWORK, NOT_AUDITED)
    holding = [each for each in audit.findings if each.holds_back or each.keeps_out]
    if not holding:
        return NotEnough(Cause.NETWORK, audit.unjudged) if audit.unjudged else Clear(Cause.NETWORK)
    return Finding(
        cause=Cause.NETWORK,
        phase=Phase.NETWORK,
        evidence=tuple(text for each in holding for text in (f"{each.code}: {each.evidence}", each.fix)),
        fixes=(Fix.REPAIR_PATH,),
        would_not_help=WOULD_NOT_HELP if any(each.holds_back for each in holding) else WOULD_NOT_HELP_KEPT_OUT,
        score=max(each.delay_ms for each in holding) / objectives.of(None, None).ttft_ms,
    )
