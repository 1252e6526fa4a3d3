"""Requests that fail by the platform's own fault: whichever part it is, it is named, and what brings it back."""

from __future__ import annotations

import random

import msgspec
import pytest

from control.diagnosis.findings.evidence import Audit, Evidence, Failure
from control.diagnosis.findings.finding import Cause, Phase
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.rules.platform_failures import DEFECT, OTHERS, PARTS
from control.diagnosis.findings.tree import Diagnosis, Outcome, diagnose
from gateway.wire.errors import STATUS_AND_TYPE
from tests.control.diagnosis.findings.plain_evidence import window_of
from tests.control.diagnosis.findings.traffic import BEGAN, WINDOW, evidence, first_of, rows

OURS = sorted(code for code, (status, _) in STATUS_AND_TYPE.items() if status >= 500 and code not in OTHERS)
DEFECTS = {"internal_error", "invalid_config", "service_unavailable", "handed_over", "transfer_coding_unsupported"}
"""Codes of no part: requests that are counted never end with the last four."""


def failing(every: int, *codes: str, status: int = 503) -> Diagnosis:
    """Traffic of which every so many fail, by turns with these codes."""
    now = [
        row if number % every else msgspec.structs.replace(
            row, status=status, error_code=codes[number // every % len(codes)], ttft_ms=None
        )
        for number, row in enumerate(rows(random.Random(11), BEGAN))
    ]  # fmt: skip
    return diagnose(Evidence(now=window_of(now, BEGAN, BEGAN + WINDOW), audit=Audit()))


def test_every_code_of_ours_is_judged_by_some_rule() -> None:
    assert set(STATUS_AND_TYPE) >= OTHERS
    assert set(OURS) - DEFECTS == set(PARTS)


@pytest.mark.parametrize("code", OURS)
def test_half_of_all_requests_failing_is_found_whatever_the_code(code: str) -> None:
    found = first_of(failing(2, code))
    part = PARTS.get(code, DEFECT)
    assert (found.cause, found.phase, found.fixes) == (Cause.PLATFORM_FAILURES, part.phase, (part.fix,))
    assert f"{code} ({part.name})" in found.evidence[0]
    assert {each.fix for each in found.would_not_help} >= {Fix.MORE_REPLICAS, Fix.RAISE_LIMIT}


def test_of_several_parts_that_which_fails_most_is_first() -> None:
    found = first_of(failing(2, "router_unavailable", "internal_error", "router_unavailable"))
    assert (found.phase, found.fixes) == (Phase.ROUTE, (Fix.RESTORE_ROUTER, Fix.REPORT_DEFECT))


def test_streams_that_break_off_behind_their_status_have_failed() -> None:
    found = first_of(failing(4, "journal_unavailable", status=200))
    assert (found.cause, found.fixes) == (Cause.PLATFORM_FAILURES, (Fix.RESTORE_JOURNAL,))
    assert failing(4, "client_gone", status=200).outcome is Outcome.NOTHING_FOUND


def test_a_few_are_no_finding() -> None:
    well = evidence(3, None)
    for count, outcome in ((4, Outcome.NOTHING_FOUND), (5, Outcome.FOUND)):
        now = msgspec.structs.replace(well.now, failures=(Failure("internal_error", count),))
        assert diagnose(msgspec.structs.replace(well, now=now)).outcome is outcome


def test_it_stands_before_what_it_makes_slow() -> None:
    slow = evidence(4, Cause.SLOW_ROUTER)
    both = msgspec.structs.replace(slow.now, failures=(Failure("router_unavailable", slow.now.requests // 4),))
    found = diagnose(msgspec.structs.replace(slow, now=both))
    assert first_of(found).cause is Cause.PLATFORM_FAILURES
    assert [each.cause for each in found.explained] == [Cause.SLOW_ROUTER]


def test_it_explains_what_engines_were_not_before_and_nothing_that_they_were() -> None:
    slow = evidence(4, Cause.CHOPPY_DECODE)
    both = msgspec.structs.replace(slow.now, failures=(Failure("limiter_unavailable", slow.now.requests // 4),))
    burst = diagnose(msgspec.structs.replace(slow, now=both))
    assert [each.cause for each in burst.explained] == [Cause.CHOPPY_DECODE]
    assert burst.second == ()
    always = diagnose(msgspec.structs.replace(slow, now=both, before=None))
    assert Cause.CHOPPY_DECODE not in {each.cause for each in always.explained}
