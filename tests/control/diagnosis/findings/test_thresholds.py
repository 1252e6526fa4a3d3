"""A cause that was not found is said to be below its threshold, and a firing alert is never called nothing."""

from __future__ import annotations

import msgspec

from contracts.generation import Tier
from contracts.length_class import LengthClass
from control.diagnosis.findings.evidence import Burning
from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.thresholds import THRESHOLDS
from control.diagnosis.findings.tree import Outcome, diagnose
from tests.control.diagnosis.findings.traffic import evidence

ALERT = Burning(
    tier=Tier.CHAT,
    length=LengthClass.SHORT,
    long="1h",
    short="5m",
    threshold=14.4,
    counted=458,
    bad=39,
    looked_at=39,
    burnt=(),
)


def test_every_cause_has_its_threshold_in_words() -> None:
    assert set(THRESHOLDS) == set(Cause)
    assert THRESHOLDS[Cause.ENGINE_FAILURES].startswith("2% of the requests")
    assert "1.5 times" in THRESHOLDS[Cause.SLOW_PREFILL]


def test_an_alert_without_a_cause_is_an_outcome_of_its_own() -> None:
    well = evidence(3, None)
    assert diagnose(well).outcome is Outcome.NOTHING_FOUND
    assert diagnose(msgspec.structs.replace(well, burning=(ALERT,))).outcome is Outcome.BURNING
    ill = msgspec.structs.replace(evidence(3, Cause.SLOW_PREFILL), burning=(ALERT,))
    assert diagnose(ill).outcome is Outcome.FOUND


def test_an_alert_says_how_many_requests_broke_the_objective() -> None:
    assert ALERT.told == (
        "39 of 458 requests of chat, short prompts (8.52%) broke the objective in 1h: the error budget burns at more "
        "than 14.4 times the allowed rate, over 1h and still over 5m."
    )
