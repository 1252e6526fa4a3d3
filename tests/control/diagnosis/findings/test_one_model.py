"""Failures of one model or pool are found by their share of that model's requests, not of everybody's."""

from __future__ import annotations

import random

import msgspec
import pytest

from control.diagnosis.findings.evidence import Audit, Evidence
from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.tree import Diagnosis, Outcome, diagnose
from tests.control.diagnosis.findings.plain_evidence import Row, window_of
from tests.control.diagnosis.findings.traffic import BEGAN, WINDOW, a_row, first_of

MANY, OF_ONE, FAILED = 2_000, 458, 39


def of_one_model(code: str, failed: int = FAILED, *, pool: str | None = None) -> Diagnosis:
    """Much traffic of one model that is well; of a second one's requests some ended with a 503."""
    source = random.Random(5)

    def row(number: int, model: str) -> Row:
        at = BEGAN + WINDOW * (number / (MANY + OF_ONE))
        return msgspec.structs.replace(a_row(source, at, "acme", 1_200, 900), model=model, pool=f"{model}-pool")

    well = [row(number, "busy") for number in range(MANY)]
    theirs = [row(MANY + number, "quiet") for number in range(OF_ONE)]
    ill = [
        msgspec.structs.replace(each, status=503, error_code=code, pool=pool, replica_id=None, ttft_ms=None)
        if number < failed
        else each
        for number, each in enumerate(theirs)
    ]
    return diagnose(Evidence(now=window_of([*well, *ill], BEGAN, BEGAN + WINDOW), audit=Audit()))


@pytest.mark.parametrize(
    ("code", "cause", "fix"),
    [
        ("no_engine_available", Cause.ENGINE_FAILURES, Fix.BRING_BACK_ENGINES),
        ("engine_failed", Cause.ENGINE_FAILURES, Fix.REPAIR_ENGINE),
        ("adapter_unavailable", Cause.PLATFORM_FAILURES, Fix.REPAIR_ADAPTER),
        ("overloaded", Cause.QUEUE, Fix.MORE_REPLICAS),
    ],
)
def test_failures_of_one_model_are_found_that_are_few_of_all_requests(code: str, cause: Cause, fix: Fix) -> None:
    found = of_one_model(code)
    first = first_of(found)
    assert (first.cause, first.fixes[0]) == (cause, fix)
    told = " ".join(first.evidence)
    assert f"Of 458 requests of the model quiet 39 (8.5%) ended with it: 39 {code}." in told


def test_failures_of_one_model_below_its_threshold_are_no_finding() -> None:
    assert of_one_model("no_engine_available", failed=4).outcome is Outcome.NOTHING_FOUND


def test_a_pool_is_named_whose_requests_fail_more_often_than_its_model() -> None:
    """A model with two pools, of which one fails."""
    source = random.Random(6)
    rows = []
    for number in range(2_000):
        pool = "new" if number % 10 == 0 else "old"
        each = msgspec.structs.replace(
            a_row(source, BEGAN + WINDOW * (number / 2_000), "acme", 1_200, 900), model="m", pool=pool
        )
        if pool == "new" and number % 20 == 0:
            each = msgspec.structs.replace(each, status=503, error_code="engine_failed", ttft_ms=None)
        rows.append(each)
    found = first_of(diagnose(Evidence(now=window_of(rows, BEGAN, BEGAN + WINDOW), audit=Audit())))
    assert found.evidence[1] == "Of 200 requests of the pool new 100 (50.0%) ended with it: 100 engine_failed."
