"""What a release still lacks, in words."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from control.releases.judge import Decision, Policy, Verdict
from control.releases.judge.evidence import Evidence
from control.releases.judge.wealth import inverse, wealth
from control.releases.rollout.outlook import least_coins, least_good, outlook

POLICY = Policy(least_units=(100, 200))
FIRST = Evidence(
    metric="ttft", test="first requests", candidate=300, control=300, alpha=0.01, is_enough=False, log10_e=-3.0
)


def proof(candidate: int, control: int, log10_e: float, metric: str = "ttft") -> Evidence:
    return Evidence(
        metric=metric, test="t", candidate=candidate, control=control, alpha=0.05, is_enough=False, log10_e=log10_e
    )


def verdict(stage: int, candidate: int, control: int, *proofs: Evidence) -> Verdict:
    return Verdict(
        decision=Decision.WAIT, stage=stage, candidate_units=candidate, control_units=control, decided_by=(),
        missing=(), reason="", harms=(FIRST,), proofs=proofs,
    )  # fmt: skip


def test_sessions_that_a_stage_lacks_are_told_with_the_time_they_take() -> None:
    assert list(outlook(verdict(0, 40, 100, proof(0, 0, 0)), POLICY, 60)) == [
        "60 more sessions of the candidate (40 of 100 in this stage): 2 min at this stage's pace so far"
    ]
    [said] = outlook(verdict(0, 0, 100), POLICY, 60)
    assert said == "100 more sessions of the candidate (0 of 100 in this stage): none so far"


def test_a_proof_that_grows_is_told_by_how_it_grew() -> None:
    """Half of the powers of ten are there after 600 sessions, and two sessions come a second."""
    [said] = outlook(verdict(1, 300, 300, proof(3, 30, 1.30103 / 2, "errors")), POLICY, 300)
    assert said.startswith("proof of failures (t): about 600 more sessions of both arms, if it continues at this rate")
    assert said.endswith("5 min at this stage's pace so far")


def test_a_proof_of_latency_that_does_not_grow_says_what_it_takes() -> None:
    """20 of the control's among 600 sessions of both arms were slow: each takes 30 sessions, and two come a second."""
    one = proof(20, 20, -1.0)
    [said] = outlook(verdict(1, 300, 300, one), POLICY, 300)
    coins = least_coins(one)
    assert f"{coins} more slow sessions of the control" in said
    assert f"about {30 * coins:,} more sessions of both arms; {30 * coins / 2 / 60:.0f} min at this stage's" in said
    [unknown] = outlook(verdict(1, 300, 300, proof(0, 0, 0.0)), POLICY, 300)
    assert "the control had none so far" in unknown


def test_a_proof_of_failures_that_does_not_grow_says_how_many_good_sessions_it_takes() -> None:
    one = proof(6, 4, -0.2, "errors")
    [said] = outlook(verdict(1, 300, 300, one), POLICY, 300)
    assert (
        f"about {least_good(one, 600, POLICY.error_margin):,} more sessions of both arms, if none of their first"
        in said
    )


def test_the_least_good_sessions_are_the_least() -> None:
    one = proof(2, 1, 0, "errors")

    def enough(more: int) -> bool:
        fair = Decimal("0.01")
        return wealth(((-1 + fair, 2), (1 + fair, 1), (fair, 97 + more))) >= inverse(0.05)

    found = least_good(one, 100, 0.02)
    assert enough(found)
    assert not enough(found - 1)


@pytest.mark.parametrize(("candidate", "control"), [(0, 0), (5, 0), (20, 25)])
def test_the_least_coins_are_the_least(candidate: int, control: int) -> None:
    one = proof(candidate, control, 0)

    def enough(more: int) -> bool:
        return wealth(((Decimal(-1), candidate), (Decimal(1), control + more))) >= inverse(0.05)

    counted = next(more for more in range(1, 1_000) if enough(more))
    assert least_coins(one) == counted


def test_before_anybody_is_served_nothing_is_told() -> None:
    assert list(outlook(verdict(-1, 0, 0), POLICY, 10)) == []
    assert list(outlook(msgspec.structs.replace(verdict(0, 100, 100)), POLICY, 10)) == []
