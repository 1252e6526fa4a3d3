"""Whose flood it is: one organization is named where what waits or is turned away is its own, and nobody is where all
are loaded alike."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec
import pytest

from control.diagnosis.findings.concentration import Concentration, refused_beyond_shares
from control.diagnosis.findings.evidence import Audit, Evidence, Window
from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.rules.limits import FLOOD
from control.diagnosis.findings.tree import Diagnosis, Outcome, diagnose
from tests.control.diagnosis.findings.plain_evidence import Row, window_of
from tests.control.diagnosis.findings.traffic import BEGAN, CHANGES, TENANTS, WINDOW, a_row, first_of, rows

MIDDLE = BEGAN + WINDOW
SEEDS = range(3)


def turned_away(row: Row) -> Row:
    """Beyond its organization's share."""
    return msgspec.structs.replace(row, status=503, error_code="overloaded", over_share=True, ttft_ms=None)


def window(kept: Iterable[Row], began: datetime = MIDDLE) -> Window:
    return window_of(kept, began, began + WINDOW)


def diagnosed(seed: int, change: Callable[[random.Random, Row], Row], *, of: str | None = None) -> Diagnosis:
    """Beside a minute that was well. of: whose requests alone are looked at."""
    source = random.Random(seed)
    before = list(rows(source, BEGAN))
    now = [change(source, row) for row in rows(source, MIDDLE)]
    if of is not None:
        before, now = ([row for row in each if row.organization == of] for each in (before, now))
    return diagnose(Evidence(before=window(before, BEGAN), now=window(now), audit=Audit()))


def flooding(part: float) -> Callable[[random.Random, Row], Row]:
    return lambda source, row: turned_away(row) if row.organization == "bolt" and source.random() < part else row


@pytest.mark.parametrize("part", [0.2, 0.3, 0.5])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_flood_that_is_a_small_part_of_all_requests_is_named_by_its_organization(seed: int, part: float) -> None:
    found = diagnosed(seed, flooding(part))
    first = first_of(found)
    assert first.cause is Cause.LIMITS
    told = " ".join(first.evidence)
    assert "Refused most: bolt: " in told
    assert "that were refused beyond a fair share are those of bolt, which sent" in told
    assert first.fixes[0] is Fix.PACE_REQUESTS
    assert not found.second
    assert Cause.QUEUE in found.clear, "each refusal is judged by one rule"


def test_the_floods_of_the_tests_are_small() -> None:
    """Else they would be found without anything being concentrated."""
    source = random.Random(1)
    now = window([flooding(0.5)(source, row) for row in rows(source, MIDDLE)])
    assert 0 < now.over_share < FLOOD * now.requests


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_turned_away_of_all_alike_is_nobodys_flood(seed: int) -> None:
    found = diagnosed(seed, lambda source, row: turned_away(row) if source.random() < 0.1 else row)
    first = first_of(found)
    assert first.cause is Cause.QUEUE
    told = " ".join(first.evidence)
    assert "beyond their organization's share (most: " in told
    assert "which sent" not in told
    assert Cause.LIMITS in found.clear


@pytest.mark.parametrize("seed", SEEDS)
def test_a_few_that_were_turned_away_are_nothing(seed: int) -> None:
    """Four, all of one organization: one more would be a finding."""
    left = iter(range(4))

    def change(source: random.Random, row: Row) -> Row:
        return turned_away(row) if row.organization == "bolt" and next(left, None) is not None else row

    assert diagnosed(seed, change).outcome is Outcome.NOTHING_FOUND


@pytest.mark.parametrize(
    ("count", "whole", "requests", "clear"),
    [
        (30, 30, 300, True),
        (30, 30, 970, False),  # who sends nearly everything has nearly all that is refused
        (300, 300, 900, True),  # unless chance does not bring that
        (24, 30, 600, False),  # refused hardly more often than the others
        (20, 30, 100, False),  # a third is others'
        (4, 4, 10, False),
        (30, 30, 1_000, False),  # there are no others to compare it with
    ],
)
def test_what_is_concentrated(count: int, whole: int, requests: int, clear: bool) -> None:
    assert Concentration("bolt", count, whole, requests, 1_000).is_concentrated is clear


def test_nobody_is_named_where_nothing_was_refused() -> None:
    assert refused_beyond_shares(window(rows(random.Random(1), MIDDLE))) is None


def test_an_organization_alone_is_told_of_its_own_excess() -> None:
    found = diagnosed(3, flooding(0.3), of="bolt")
    first = first_of(found)
    assert first.cause is Cause.LIMITS
    assert first.evidence[1].startswith("Refused most: bolt: ")
    others = diagnosed(3, flooding(0.3), of="acme")
    assert others.outcome is Outcome.NOTHING_FOUND


def test_the_wait_of_a_flood_is_explained_by_it_unless_others_are_turned_away_too() -> None:
    def change(source: random.Random, row: Row) -> Row:
        return flooding(0.5)(source, CHANGES[Cause.QUEUE](source, row))

    found = diagnosed(4, change)
    assert (first_of(found).cause, [each.cause for each in found.explained]) == (Cause.LIMITS, [Cause.QUEUE])

    def others_too(source: random.Random, row: Row) -> Row:
        if row.organization == "acme" and source.random() < 0.3:
            return msgspec.structs.replace(turned_away(row), over_share=False)
        return change(source, row)

    found = diagnosed(4, others_too)
    assert (first_of(found).cause, [each.cause for each in found.second]) == (Cause.LIMITS, [Cause.QUEUE])


@pytest.mark.parametrize("seed", SEEDS)
def test_whose_requests_alone_wait_is_named(seed: int) -> None:
    """bolt's batches come on top of what all ask, and wait; nobody else does."""
    source = random.Random(seed)
    before = list(rows(source, BEGAN))
    now = list(rows(source, MIDDLE))
    for row in list(now):
        if row.organization == "bolt":
            more = a_row(source, row.at, "bolt", row.prompt_tokens or 0, row.cached_tokens or 0)
            now.append(CHANGES[Cause.QUEUE](source, more))
    found = first_of(diagnose(Evidence(before=window(before, BEGAN), now=window(now), audit=Audit())))
    assert found.cause is Cause.QUEUE
    [told] = [each for each in found.evidence if "are those of" in each]
    assert "requests that waited 100 ms and longer are those of bolt, which sent" in told
    assert found.fixes[0] is Fix.PACE_REQUESTS


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_named_where_all_wait(seed: int) -> None:
    found = first_of(diagnosed(seed, CHANGES[Cause.QUEUE]))
    assert found.cause is Cause.QUEUE
    assert not any(name in each for each in found.evidence for name in TENANTS)
    assert Fix.PACE_REQUESTS not in found.fixes
