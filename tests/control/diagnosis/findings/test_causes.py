"""Every cause is found in traffic that has it, and nothing in traffic that is well."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from contracts.fair_share import FAIR_SHARE
from control.diagnosis.findings.evidence import Audit, Evidence, Window
from control.diagnosis.findings.finding import Cause
from control.diagnosis.findings.fix import Fix
from control.diagnosis.findings.measure import Measure
from control.diagnosis.findings.tree import RULES, Outcome, diagnose
from tests.control.diagnosis.findings.plain_evidence import window_of
from tests.control.diagnosis.findings.traffic import BEGAN, CHANGES, WINDOW, evidence, first_of, rows

SEEDS = range(3)


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize("cause", CHANGES)
def test_the_cause_is_the_first_finding_and_what_would_not_help_is_not_proposed(cause: Cause, compared: bool) -> None:
    for seed in SEEDS:
        found = diagnose(evidence(seed, cause, compared=compared))
        first = first_of(found)
        assert first.cause is cause, (seed, first, found.second)
        assert first.fixes
        assert any(character.isdigit() for character in first.evidence[0]), first.evidence
        assert not set(first.fixes) & {each.fix for each in first.would_not_help}


@pytest.mark.parametrize("seed", range(15))
def test_nothing_is_found_where_all_is_well(seed: int) -> None:
    found = diagnose(evidence(seed, None))
    assert found.outcome is Outcome.NOTHING_FOUND, found


def test_every_cause_has_a_rule_and_every_fix_its_words() -> None:
    assert set(RULES) == set(Cause)
    assert all(fix.told.endswith(".") for fix in Fix)


def test_a_way_to_the_engine_is_told_from_its_queue_and_prefill() -> None:
    healthy = evidence(1, None)
    source = random.Random(2)
    slow = [
        msgspec.structs.replace(
            row, phases_ms={**row.phases_ms, "engine": row.phases_ms["engine"] + 200}, ttft_ms=(row.ttft_ms or 0) + 200
        )
        for row in rows(source, BEGAN + WINDOW)
    ]
    found = diagnose(msgspec.structs.replace(healthy, now=window_of(slow, BEGAN + WINDOW, BEGAN + 2 * WINDOW)))
    assert first_of(found).cause is Cause.ENGINE_LINK


def test_a_schema_that_compiles_slowly_is_no_way_to_the_engine() -> None:
    """Nor is it one where all is compiled quickly; both are told beside what is known of the other."""
    found = diagnose(evidence(3, Cause.GRAMMAR))
    first = first_of(found)
    assert (first.cause, first.fixes[0]) == (Cause.GRAMMAR, Fix.SAME_SCHEMA)
    assert found.second == ()
    assert Cause.ENGINE_LINK in found.clear
    assert Fix.REPAIR_ENGINE_LINK in {each.fix for each in first.would_not_help}
    assert Cause.GRAMMAR in diagnose(evidence(3, None)).clear


def test_an_engine_that_does_not_tell_of_its_grammars_is_not_cleared_of_them() -> None:
    source = random.Random(3)
    untold = [msgspec.structs.replace(row, engine_grammar_ms=None) for row in rows(source, BEGAN)]
    found = diagnose(Evidence(now=window_of(untold, BEGAN, BEGAN + WINDOW), audit=Audit()))
    assert Cause.GRAMMAR in {each.cause for each in found.unknown}


def test_few_requests_are_not_enough_evidence() -> None:
    source = random.Random(3)
    few = list(rows(source, BEGAN))[:20]
    window = window_of(few, BEGAN, BEGAN + WINDOW)
    found = diagnose(Evidence(now=window, before=window))
    assert found.outcome is Outcome.NOT_ENOUGH_EVIDENCE
    assert {each.cause for each in found.unknown} >= {Cause.QUEUE, Cause.SLOW_DECODE, Cause.RETRACTIONS}


def test_without_a_window_before_only_missed_objectives_are_found() -> None:
    bad, well = evidence(4, Cause.QUEUE), evidence(4, None)
    assert diagnose(msgspec.structs.replace(well, before=None)).outcome is Outcome.NOTHING_FOUND
    found = diagnose(msgspec.structs.replace(bad, before=None))
    first = first_of(found)
    assert first.cause is Cause.QUEUE
    assert not first.new


def test_retractions_come_before_whatever_they_make_look_ill() -> None:
    found = diagnose(evidence(5, Cause.RETRACTIONS))
    assert first_of(found).cause is Cause.RETRACTIONS
    assert Cause.QUEUE in {each.cause for each in found.explained}
    assert Cause.QUEUE not in {each.cause for each in found.second}


def test_a_structural_cause_does_not_hide_a_costlier_phase_that_it_does_not_explain() -> None:
    mixed = evidence(6, Cause.SLOW_ROUTER)
    broken = evidence(6, Cause.BROKEN_PREFIX)
    both = msgspec.structs.replace(
        mixed, now=msgspec.structs.replace(mixed.now, tenants=broken.now.tenants, parts=broken.now.parts)
    )
    found = diagnose(both)
    assert first_of(found).cause is Cause.SLOW_ROUTER
    assert Cause.BROKEN_PREFIX in {each.cause for each in found.second}


def test_a_queue_behind_slower_engines_is_theirs_and_one_behind_more_load_is_its_own() -> None:
    slow, queued = evidence(8, Cause.SLOW_DECODE), evidence(8, Cause.QUEUE)
    classes = tuple(
        msgspec.structs.replace(now, measures={**now.measures, Measure.WAIT: other.measures[Measure.WAIT]})
        for now, other in zip(slow.now.classes, queued.now.classes, strict=True)
    )
    both = msgspec.structs.replace(slow, now=msgspec.structs.replace(slow.now, classes=classes))
    found = diagnose(both)
    assert (first_of(found).cause, [each.cause for each in found.explained]) == (Cause.SLOW_DECODE, [Cause.QUEUE])
    busier = msgspec.structs.replace(both.now, requests=2 * both.now.requests)
    found = diagnose(msgspec.structs.replace(both, now=busier))
    assert first_of(found).cause is Cause.QUEUE
    assert not found.second


def test_of_one_organization_alone_its_prompts_tell_a_lost_cache_from_a_broken_prefix() -> None:
    for cause in (Cause.LOST_CACHE, Cause.BROKEN_PREFIX):
        whole = evidence(9, cause)
        assert whole.before is not None
        alone = Evidence(now=only("bolt", whole.now), before=only("bolt", whole.before), audit=Audit())
        found = diagnose(alone)
        assert first_of(found).cause is cause


def only(organization: str, window: Window) -> Window:
    """Nobody else's shares are known."""
    return msgspec.structs.replace(
        window,
        tenants=tuple(each for each in window.tenants if each.organization == organization),
        parts=tuple(each for each in window.parts if each.organization == organization),
    )


def test_what_limits_refused_names_whose_it_was() -> None:
    source = random.Random(8)
    refused = [CHANGES[Cause.LIMITS](source, row) for row in rows(source, BEGAN)]
    window = window_of(refused, BEGAN, BEGAN + WINDOW)
    found = first_of(diagnose(Evidence(now=window, audit=Audit())))
    most, count = Counter(row.organization for row in refused if row.status == 429).most_common(1)[0]
    assert found.evidence[1].startswith(f"Refused most: {most}: {count:,}")


def test_whose_flood_the_router_shed_is_named_and_not_taken_for_a_queue() -> None:
    source = random.Random(4)
    shed = [
        msgspec.structs.replace(row, status=503, error_code="overloaded", over_share=True, ttft_ms=None)
        if row.organization == "bolt" and source.random() < 0.8
        else row
        for row in rows(source, BEGAN)
    ]
    found = diagnose(Evidence(now=window_of(shed, BEGAN, BEGAN + WINDOW), audit=Audit()))
    finding = first_of(found)
    assert (finding.cause, found.second) == (Cause.LIMITS, ())
    assert Cause.QUEUE in found.clear, "each refusal is judged by one rule"
    count = sum(row.over_share is True for row in shed)
    assert f"{FAIR_SHARE} (overloaded) refused {count:,}" in finding.evidence[0]
    assert finding.evidence[1] == f"Refused most: bolt: {count:,}."
    assert Fix.RAISE_LIMIT not in finding.fixes
    assert not set(finding.fixes) & {each.fix for each in finding.would_not_help}
