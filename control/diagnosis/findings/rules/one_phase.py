"""The common rule for phases that should take almost no time."""

from __future__ import annotations

import msgspec

from control.diagnosis.findings.comparison import OURS, Share, dominating, grown, lacking
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Clear, Finding, NotEnough, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import BEFORE_FIRST_TOKEN, Measure
from control.diagnosis.findings.objectives import Number, Objectives


class OnePhase(msgspec.Struct, frozen=True):
    """A rule about a single measure."""

    cause: Cause
    phase: Phase
    measure: Measure
    fixes: tuple[Fix, ...]
    would_not_help: tuple[WouldNotHelp, ...]
    questions: tuple[str, ...] = ()
    least: Share = OURS
    not_measured: str = ""
    """The reason if the measure is unknown; empty for the usual one."""

    def judge(self, evidence: Evidence, objectives: Objectives) -> Verdict:
        """Judge whether the measure grew or takes most of a missed TTFT."""
        slow = grown(evidence, self.measure, objectives, Number.TTFT, self.least)
        slow = slow or dominating(evidence, self.measure, objectives)
        if slow is None:
            missing = self.not_measured or f"no phase `{self.phase}` was measured"
            alone = self.measure not in BEFORE_FIRST_TOKEN
            why = lacking(evidence, self.measure, missing, growth_alone=alone)
            return Clear(self.cause) if why is None else NotEnough(self.cause, why)
        return Finding(
            cause=self.cause,
            phase=self.phase,
            evidence=(slow.told,),
            fixes=self.fixes,
            would_not_help=self.would_not_help,
            questions=self.questions,
            new=slow.before is not None,
            score=slow.score,
        )
