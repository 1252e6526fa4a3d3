from __future__ import annotations

import pytest

from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.length_class import LengthClass
from contracts.objectives import OBJECTIVES, Objective
from control.slo.judgement import Judgement, TraceRow, judge
from control.slo.objectives import SloConfig

PROMISED = Objective(Tier.CHAT, LengthClass.SHORT, 700.0, 40.0, 100.0)
SERVED = {"status": 200, "total_ms": 5_000.0, "ttft_ms": 700.0, "tpot_ms": 40.0, "itl_max_ms": 100.0}
FAILED = Judgement(counted=True)
NOT_COUNTED = Judgement()


def judged(**changes: object) -> Judgement:
    return judge(TraceRow(**{**SERVED, **changes}), PROMISED)  # type: ignore[arg-type]


def test_what_is_exactly_as_promised_is_good() -> None:
    assert judged() == Judgement(True, True, True, True)
    assert judged().good


@pytest.mark.parametrize(
    ("late", "kept"),
    [
        ({"ttft_ms": 700.1}, (False, True, True)),
        ({"tpot_ms": 40.1}, (True, False, True)),
        ({"itl_max_ms": 100.1}, (True, True, False)),
    ],
)
def test_one_figure_missed_is_enough(late: dict[str, float], kept: tuple[bool, ...]) -> None:
    found = judged(**late)
    assert (found.ttft_kept, found.tpot_kept, found.gap_kept) == kept
    assert found.counted
    assert not found.good


@pytest.mark.parametrize(
    "ending",
    [
        {"status": 500, "error_code": "internal_error"},
        {"status": 502, "error_code": "engine_failed"},
        {"status": 503, "error_code": "overloaded", "ttft_ms": None},
        {"status": 503, "error_code": "no_engine_available", "ttft_ms": None},
        {"status": 200, "error_code": "engine_failed"},
    ],
)
def test_what_fails_by_our_fault_is_bad(ending: dict[str, object]) -> None:
    assert judged(**ending) == FAILED


def test_what_an_organization_asks_for_beyond_its_share_is_told_apart() -> None:
    shed = {"status": 503, "error_code": "overloaded", "ttft_ms": None}
    assert judged(**shed, over_share=True) == Judgement(counted=True, over_share=True)
    assert judged(**shed, over_share=False) == judged(**shed) == FAILED


@pytest.mark.parametrize(
    "ending",
    [
        {"status": 400, "error_code": "invalid_value", "ttft_ms": None},
        {"status": 429, "error_code": "rate_limit_exceeded", "ttft_ms": None},
        {"status": 499, "error_code": "client_gone", "ttft_ms": None},
        {"status": 499, "error_code": "client_gone"},
        {"status": 200, "error_code": "client_gone", "ttft_ms": None},
        {"status": 200, "error_code": "superseded"},
        {"status": 200, "error_code": "engine_refused"},
        {"status": 200, "error_code": "context_length_exceeded"},
        {"status": 200, "error_code": "invalid_value", "ttft_ms": None},
        {"status": 200, "error_code": "unsupported_parameter", "ttft_ms": None},
        {"status": 200, "ttft_ms": None},
    ],
)
def test_what_says_nothing_of_us_is_not_counted(ending: dict[str, object]) -> None:
    assert judged(**ending) == NOT_COUNTED


def test_a_client_that_left_behind_the_first_text_is_judged_by_what_it_had() -> None:
    assert judged(error_code="client_gone", tpot_ms=None, itl_max_ms=None).good
    assert not judged(error_code="client_gone", ttft_ms=701.0, tpot_ms=None, itl_max_ms=None).good


def test_an_answer_without_text_begins_with_its_end() -> None:
    empty = {"ttft_ms": None, "tpot_ms": None, "itl_max_ms": None, "completion_tokens": 0}
    assert judged(**empty, total_ms=700.0).good
    assert not judged(**empty, total_ms=701.0).good


def test_what_is_not_promised_is_not_missed() -> None:
    plain = Objective(Tier.CHAT, LengthClass.SHORT, 700.0)
    assert judge(TraceRow(status=200, total_ms=1, ttft_ms=1, tpot_ms=1e6, itl_max_ms=1e6), plain).good
    assert judge(TraceRow(status=500, total_ms=1), None) == NOT_COUNTED


def test_the_defaults_promise_every_tier_and_length_one_thing() -> None:
    assert {(each.tier, each.length) for each in OBJECTIVES} == {
        (tier, length) for tier in Tier for length in LengthClass
    }
    SloConfig().check()


def test_two_promises_for_the_same_requests_are_refused() -> None:
    twice = SloConfig((PROMISED, Objective(Tier.CHAT, LengthClass.SHORT, 400.0)))
    with pytest.raises(ConfigError, match="two for tier 'chat' and length 'short'; keep one"):
        twice.check()
