"""Requests wait for the compilation of their output's grammar: the schema compiles slowly, or each request has a new
one.

The engine compiles a schema once per organization, on its CPU, before the request enters the engine's queue.
"""

from __future__ import annotations

from control.diagnosis.findings.comparison import ENGINE
from control.diagnosis.findings.evidence import Evidence
from control.diagnosis.findings.finding import Cause, Phase, Verdict, WouldNotHelp
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules.one_phase import OnePhase

RULE = OnePhase(
    Cause.GRAMMAR,
    Phase.GRAMMAR,
    Measure.GRAMMAR,
    (Fix.SAME_SCHEMA, Fix.MORE_COMPILERS),
    (
        WouldNotHelp(Fix.REPAIR_ENGINE_LINK, "the engine has the request, and compiles its schema"),
        WouldNotHelp(Fix.CHUNKED_PREFILL, "the prompt is not computed yet"),
        WouldNotHelp(Fix.PREFIX_CACHING, "the prompt is not computed yet"),
        WouldNotHelp(Fix.WEIGHT_QUANTIZATION, "the model is not involved"),
    ),
    ("Is it one schema that changes with every request (a date, an id in an enumeration), or many that stay?",),
    least=ENGINE,
    not_measured="no engine reported the time of compiling grammars",
)


def judge(evidence: Evidence, objectives: Objectives) -> Verdict:
    """Judge by the engine's report."""
    return RULE.judge(evidence, objectives)
