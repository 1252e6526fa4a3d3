"""Engines fail: requests end with an engine's error or need a second engine. A restarted request is not merely slow.

The anatomy's tree, branch "both": "check OOM-recovery logs first".
"""

from __future__ import annotations

from control.diagnosis.findings.evidence import Evidence, Failure
from control.diagnosis.findings.failing import FailingPart, failing_part
from control.diagnosis.findings.finding import Cause, Clear, Finding, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives

NONE_THERE = "no_engine_available"
CODES = ("engine_failed", "engine_timeout", "engine_loop", NONE_THERE)
SHARE, FEWEST = 0.02, 5
WOULD_NOT_HELP = (
    WouldNotHelp(Fix.SPECULATIVE_DECODING, "an engine that fails is not a slow one"),
    WouldNotHelp(Fix.BIGGER_BATCH, "more load makes an engine that runs out of memory fail more often"),
    WouldNotHelp(Fix.RAISE_LIMIT, "nothing was refused by a limit"),
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by error codes and second attempts."""
    now = evidence.now
    failures = [failure for failure in now.failures if failure.code in CODES]
    count = sum(failure.count for failure in failures)
    part = failing_part(now, CODES, SHARE, FEWEST)
    few = count + now.retried < FEWEST or count + now.retried < SHARE * now.requests
    if few and part is None:
        return Clear(Cause.ENGINE_FAILURES)
    codes = ", ".join(f"{failure.count:,} {failure.code}" for failure in failures) or "none"
    return Finding(
        cause=Cause.ENGINE_FAILURES,
        phase=Phase.ENGINE,
        evidence=(
            f"Of {now.requests:,} requests {count:,} ended with an engine's failure ({codes}), and of the others "
            f"{now.retried:,} needed another engine.",
            *([] if part is None else [part.told]),
        ),
        fixes=(Fix.BRING_BACK_ENGINES, Fix.REPAIR_ENGINE) if _none_there(part, failures) else (Fix.REPAIR_ENGINE,),
        would_not_help=WOULD_NOT_HELP,
    )


def _none_there(part: FailingPart | None, failures: list[Failure]) -> bool:
    """Whether the most frequent failure is that no engine takes requests: all are down or drained."""
    considered = failures if part is None else list(part.failures)
    most = max(considered, key=lambda failure: failure.count, default=None)
    return most is not None and most.code == NONE_THERE
