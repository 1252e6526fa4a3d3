"""The anatomy's drill: a dump of one deployment, and the answer that its authors call a strong one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from contracts.generation import Tier
from contracts.length_class import LengthClass
from control.diagnosis.findings.evidence import Evidence, Quantiles, Slice, Window
from control.diagnosis.findings.finding import Cause, Phase
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.tree import BOTH_QUESTION, Outcome, diagnose
from tests.control.diagnosis.findings.traffic import first_of

REQUESTS = 60 * 60
"""60 a second, for a minute."""


def flat(value: float) -> Quantiles:
    """Of a dump that has one number."""
    return Quantiles(REQUESTS, value, value, value, value)


# 13B on 2 x A100 80GB: TTFT p99 3.2 s, between tokens p99 80 ms, 60 a second, 2,200 tokens in, 180 out. Nothing tells
# the engine's queue from its prefill.
DUMP = Slice(
    requests=REQUESTS,
    tier=Tier.CHAT,
    length=LengthClass.SHORT,
    measures={
        Measure.TTFT: Quantiles(REQUESTS, 1_400.0, 2_300.0, 2_700.0, 3_200.0),
        Measure.TPOT: Quantiles(REQUESTS, 55.0, 70.0, 74.0, 80.0),
        Measure.ENGINE_UNSPLIT: Quantiles(REQUESTS, 1_300.0, 2_200.0, 2_600.0, 3_100.0),
        Measure.LIMIT: flat(2.0),
        Measure.ROUTE: flat(2.0),
        Measure.WAIT: flat(0.0),
        Measure.PROMPT_TOKENS: flat(2_200.0),
        Measure.COMPLETION_TOKENS: flat(180.0),
    },
    # both medians miss: half of the requests, at least
    beyond={Measure.TTFT: REQUESTS // 2, Measure.TPOT: REQUESTS // 2},
    late_ms={Measure.ENGINE_UNSPLIT: 1_800.0, Measure.LIMIT: 2.0, Measure.ROUTE: 2.0, Measure.WAIT: 0.0},
)
BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
EVIDENCE = Evidence(
    now=Window(
        began=BEGAN,
        ended=BEGAN + timedelta(minutes=1),
        requests=REQUESTS,
        classes=(DUMP,),
        tiers=(Slice(requests=REQUESTS, tier=Tier.CHAT, measures=DUMP.measures),),
    )
)


def test_the_answer_is_the_documents() -> None:
    """Its dominant phase and its second one, its order of the changes, what would not help, and its open questions."""
    found = diagnose(EVIDENCE)
    assert found.outcome is Outcome.FOUND
    first = first_of(found)
    assert first.phase is Phase.QUEUE_OR_PREFILL
    assert "3,100 ms (p99 of 3,600 requests)" in first.evidence[0]
    assert set(first.fixes[:2]) == {Fix.ADMISSION_CONTROL, Fix.CHUNKED_PREFILL}
    assert first.fixes[2:] == (Fix.PREFIX_CACHING,)
    assert {each.fix for each in first.would_not_help} >= {Fix.WEIGHT_QUANTIZATION, Fix.SPECULATIVE_DECODING}
    (second,) = found.second
    assert (second.cause, second.fixes[0]) == (Cause.SLOW_DECODE, Fix.SPECULATIVE_DECODING)
    assert "80 ms (p99 of 3,600 requests)" in second.evidence[0]
    told = " ".join(found.questions)
    assert found.questions[0] == BOTH_QUESTION
    for word in ("queue", "long tail", "largest batch", "system prompt", "objective"):
        assert word in told
