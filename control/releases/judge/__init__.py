"""Decides whether a canary may continue: a verdict from counts, valid however often it is computed.

Pure: `observe` folds requests into counts, `verdict` reads them. Measuring, storing and acting happen elsewhere.
"""

from control.releases.judge.evidence import Evidence
from control.releases.judge.observation import Arm, Copy, Observation
from control.releases.judge.policy import Policy, Weights
from control.releases.judge.state import (
    Slices,
    State,
    observe,
    observe_budget,
    observe_copies,
    observe_slices,
    observe_votes,
)
from control.releases.judge.thresholds import Thresholds, least_requests, thresholds_of
from control.releases.judge.verdict import Decision, Verdict, verdict

__all__ = [
    "Arm",
    "Copy",
    "Decision",
    "Evidence",
    "Observation",
    "Policy",
    "Slices",
    "State",
    "Thresholds",
    "Verdict",
    "Weights",
    "least_requests",
    "observe",
    "observe_budget",
    "observe_copies",
    "observe_slices",
    "observe_votes",
    "thresholds_of",
    "verdict",
]
