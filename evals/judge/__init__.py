"""Whether a canary may go on: a verdict from counts, valid however often it is asked for.

Pure: `observe` folds requests into counts, `verdict` reads them. Who measures, stores and acts is not here.
"""

from evals.judge.evidence import Evidence
from evals.judge.observation import Arm, Copy, Observation
from evals.judge.policy import Policy, Weights
from evals.judge.state import Slices, State, observe, observe_budget, observe_copies, observe_slices, observe_votes
from evals.judge.thresholds import Thresholds, least_requests, thresholds_of
from evals.judge.verdict import Decision, Verdict, verdict

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
