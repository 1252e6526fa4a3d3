"""Engines that tell nothing with their answers, and what their own pages then decide."""

from __future__ import annotations

import random

import msgspec
import pytest

from control.diagnosis.findings.evidence import Audit, EnginePage, Evidence
from control.diagnosis.findings.finding import Cause, Finding, Phase
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.objectives import Objectives
from control.diagnosis.findings.rules import queue_or_prefill, retractions
from control.diagnosis.findings.tree import BOTH_QUESTION, diagnose
from tests.control.diagnosis.findings.plain_evidence import window_of
from tests.control.diagnosis.findings.traffic import BEGAN, CHANGES, REPLICAS, WINDOW, first_of, rows

POOL = "pool"


def pages(queue_s: float, prefill_s: float, again: int = 0, requests: int = 100) -> tuple[EnginePage, ...]:
    """Of every replica of the traffic; seconds of one request."""
    return tuple(
        EnginePage(
            pool=POOL,
            replica_id=f"replica-{number}",
            queue_s=queue_s * requests,
            prefill_s=prefill_s * requests,
            requests=requests,
            retractions=again * (number + 1),
        )
        for number in range(REPLICAS)
    )


def slow_engines(*told: EnginePage) -> Evidence:
    """SGLang behind a gateway: nothing is told with an answer, and the time until its first event has grown."""
    source = random.Random(3)
    untold = [
        msgspec.structs.replace(row, engine_queue_ms=None, engine_prefill_ms=None, retractions=None)
        for row in rows(source, BEGAN)
    ]
    ill = [
        msgspec.structs.replace(CHANGES[Cause.QUEUE_OR_PREFILL](source, row), retractions=None)
        for row in rows(source, BEGAN + WINDOW)
    ]
    now = window_of(ill, BEGAN + WINDOW, BEGAN + 2 * WINDOW)
    return Evidence(
        now=msgspec.structs.replace(now, pages=told), before=window_of(untold, BEGAN, BEGAN + WINDOW), audit=Audit()
    )


@pytest.mark.parametrize(
    ("queue_s", "prefill_s", "phase", "first"),
    [
        (0.8, 0.1, Phase.QUEUE, Fix.ADMISSION_CONTROL),
        (0.1, 0.8, Phase.PREFILL, Fix.CHECK_PLACEMENT),  # prompts are short
        (0.5, 0.4, Phase.QUEUE_OR_PREFILL, Fix.ADMISSION_CONTROL),
    ],
)
def test_the_page_says_which_of_the_two_it_is(queue_s: float, prefill_s: float, phase: Phase, first: Fix) -> None:
    found = first_of(diagnose(slow_engines(*pages(queue_s, prefill_s))))
    assert (found.cause, found.phase, found.fixes[0]) == (Cause.QUEUE_OR_PREFILL, phase, first)
    assert f"waited {queue_s * 1e3:,.0f} ms" in found.evidence[1]
    assert f"prefilled in {prefill_s * 1e3:,.0f} ms (means of 300 requests" in found.evidence[1]
    assert queue_or_prefill.WHICH not in found.questions
    assert not set(found.fixes) & {each.fix for each in found.would_not_help}


@pytest.mark.parametrize("told", [(), pages(0.8, 0.1, requests=9), pages(0.8, 0.1, requests=0)])
def test_without_enough_of_a_page_it_is_asked_for(told: tuple[EnginePage, ...]) -> None:
    found = first_of(diagnose(slow_engines(*told)))
    assert found.phase is Phase.QUEUE_OR_PREFILL
    assert queue_or_prefill.WHICH in found.questions


def test_pages_of_other_replicas_say_nothing() -> None:
    elsewhere = [
        msgspec.structs.replace(page, replica_id=f"far-{page.replica_id}") for page in pages(0.8, 0.1, again=9)
    ]
    found = first_of(diagnose(slow_engines(*elsewhere)))
    assert (found.cause, found.phase) == (Cause.QUEUE_OR_PREFILL, Phase.QUEUE_OR_PREFILL)


def test_retractions_of_a_page_come_before_everything() -> None:
    found = diagnose(slow_engines(*pages(0.8, 0.1, again=5)))
    first = first_of(found)
    assert first.cause is Cause.RETRACTIONS
    assert "30 times while 300 ended" in first.evidence[0]
    assert first.evidence[1] == "Most on pool, replica-2: 15."
    assert BOTH_QUESTION not in found.questions


def test_a_page_without_retractions_clears_them() -> None:
    assert Cause.RETRACTIONS in diagnose(slow_engines(*pages(0.8, 0.1))).clear
    assert Cause.RETRACTIONS not in diagnose(slow_engines()).clear


def test_what_answers_tell_is_not_counted_twice() -> None:
    source = random.Random(5)
    well = window_of(rows(source, BEGAN), BEGAN, BEGAN + WINDOW)
    told = Evidence(now=msgspec.structs.replace(well, pages=pages(9.0, 9.0, again=50)))
    assert not isinstance(retractions.judge(told, Objectives()), Finding)
