"""The founding documents' examples of what the two numbers tell together: the anatomy's worked pair, and the alerts of
the lesson on prefill and decoding (`investigate`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import Objective
from control.diagnosis.findings.evidence import Evidence, Quantiles, Slice, Window
from control.diagnosis.findings.finding import Cause, Phase
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.tree import diagnose
from tests.control.diagnosis.findings.traffic import first_of

REQUESTS = 3_000
BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
CHAT = Objectives()
ALERTS = Objectives([Objective(Tier.CHAT, LengthClass.SHORT, ttft_ms=900.0, tpot_ms=120.0)])


def evidence(ttft_ms: float, tpot_ms: float, objectives: Objectives) -> Evidence:
    """Of requests that all were as slow."""

    def flat(value: float) -> Quantiles:
        return Quantiles(REQUESTS, value, value, value, value)

    promised = objectives.of(Tier.CHAT, LengthClass.SHORT)
    engine_ms = ttft_ms - 10
    dump = Slice(
        requests=REQUESTS,
        tier=Tier.CHAT,
        length=LengthClass.SHORT,
        measures={
            Measure.TTFT: flat(ttft_ms),
            Measure.TPOT: flat(tpot_ms),
            Measure.ENGINE_UNSPLIT: flat(engine_ms),
            Measure.WAIT: flat(0.0),
            Measure.PROMPT_TOKENS: flat(800.0),
            Measure.COMPLETION_TOKENS: flat(200.0),
        },
        beyond={
            Measure.TTFT: REQUESTS * (ttft_ms > promised.ttft_ms),
            Measure.TPOT: REQUESTS * (promised.tpot_ms is not None and tpot_ms > promised.tpot_ms),
        },
        late_ms={Measure.ENGINE_UNSPLIT: engine_ms, Measure.WAIT: 0.0},
    )
    tier = Slice(requests=REQUESTS, tier=Tier.CHAT, measures=dump.measures)
    ended = BEGAN + timedelta(minutes=1)
    return Evidence(now=Window(began=BEGAN, ended=ended, requests=REQUESTS, classes=(dump,), tiers=(tier,)))


@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "objectives", "phase"),
    [
        # the anatomy: "TTFT is 7 seconds and inter-token is 50 ms: a queue or prefill problem"
        (7_000.0, 50.0, CHAT, Phase.QUEUE_OR_PREFILL),
        (200.0, 250.0, CHAT, Phase.DECODE),
        # the lesson: "inspect queueing and prefill", "inspect decode scheduling and memory pressure"
        (1_100.0, 60.0, ALERTS, Phase.QUEUE_OR_PREFILL),
        (350.0, 160.0, ALERTS, Phase.DECODE),
    ],
)
def test_each_pair_is_a_phase_of_its_own(ttft_ms: float, tpot_ms: float, objectives: Objectives, phase: Phase) -> None:
    found = diagnose(evidence(ttft_ms, tpot_ms, objectives), objectives)
    first = first_of(found)
    assert first.phase is phase
    if phase is Phase.DECODE:
        assert (first.cause, found.second) == (Cause.SLOW_DECODE, ())
        assert Fix.SPECULATIVE_DECODING in first.fixes
    else:
        assert Fix.WEIGHT_QUANTIZATION in {each.fix for each in first.would_not_help}


def test_within_the_lessons_thresholds_nothing_is_found() -> None:
    found = diagnose(evidence(900.0, 120.0, ALERTS), ALERTS)
    assert (found.primary, found.second) == (None, ())
