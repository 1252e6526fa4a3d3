"""Nights are judged as a plain reference judges them; equal nights pass, worse ones fail and name what changed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from statistics import fmean
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.gate import Decision, lower_bound
from evals.nights import Against, Night, NightRule, SliceNight, differences, judge
from evals.statistics.paired import Flips, clustered, flips, more_losses, upper_by_counts
from tests.examples import examples

PARTS, ITEMS = 4, 40
OLD, NEW = {"pool": "one"}, {"pool": "two"}
RULE = NightRule()
Scores = Mapping[int, float]


def night(day: int, scores: Mapping[str, Scores], version: Mapping[str, str] = OLD, slice_version: str = "1") -> Night:
    """Of a day: by slice, seed and score. An item is its own cluster."""
    slices = {
        name: SliceNight(slice_version, {seed: (str(seed), score) for seed, score in items.items()})
        for name, items in scores.items()
    }
    return Night(night=date(2026, 1, 1) + timedelta(days=day), version=version, slices=slices)


def part(day: int, lost: float = 0.0, items: int = ITEMS) -> dict[int, float]:
    """The items of a day's part of the panel: right, but for the first so many."""
    first = day % PARTS * items
    return {first + place: float(place >= lost * items) for place in range(items)}


def sound(days: int, *names: str) -> list[Night]:
    return [night(day, {name: part(day) for name in names or ("facts", "lists")}) for day in range(days)]


# the same by a plain reference


def reference(nights: Sequence[Night], name: str, rule: NightRule) -> Decision:
    """A slice's decision, each definition written out."""
    tonight = nights[-1]
    spell = 1
    while spell < len(nights) and nights[-spell - 1].version == tonight.version:
        spell += 1
    before = list(nights[:-spell])
    tests: list[tuple[str, list[Night], list[Night]]] = []
    windows = sorted({min(each, spell) for each in rule.windows})
    for window in windows:
        earlier = list(nights[:-window])[-rule.history_nights :]
        same = [each for each in earlier if each.version == tonight.version]
        tests.append(("history", list(nights[-window:]), same))
    if before and spell <= rule.version_nights:
        old: list[Night] = []
        while before and len(old) < rule.history_nights and before[-1].version == nights[-spell - 1].version:
            old.append(before.pop())
        tests.append(("before", list(nights[-spell:]), old))
    level = rule.false_alarms / len(tonight.slices) / (len(rule.windows) + 1)
    failed = False
    lowers: dict[str, tuple[int, float]] = {}
    for against, looked_at, known in tests:
        pairs, now = [], []
        seeds = {seed for each in looked_at for seed in items_of(each, name, tonight)}
        for seed in sorted(seeds):
            was = [items_of(each, name, tonight)[seed][1] for each in known if seed in items_of(each, name, tonight)]
            found = [items_of(each, name, tonight)[seed] for each in looked_at if seed in items_of(each, name, tonight)]
            if was:
                pairs.append((found[0][0], fmean(score for _, score in found) - fmean(was)))
                if seed in tonight.slices[name].items:
                    now.append(tonight.slices[name].items[seed][1] - fmean(was))
        if not pairs:
            continue
        together, counted = clustered(pairs), flips(difference for _, difference in pairs)
        rare = 1.0 + (together.cluster_items - 1.0) * rule.correlation
        effect = rare if against == "before" else 1.0
        fewer = Flips(counted.losses / effect, counted.wins / effect, counted.items / effect)
        worse = round(upper_by_counts(fewer, level), 9) < 0 and more_losses(fewer) <= level
        failed = failed or (worse and sum(now) < -1e-12)
        if len(pairs) >= lowers.get(against, (0, 0.0))[0]:
            lowers[against] = len(pairs), round(lower_bound(together, counted, rule.alpha, rare), 9)
    if failed:
        return Decision.FAIL
    return (
        Decision.PASS if lowers and min(lower for _, lower in lowers.values()) > -rule.margin else Decision.INCONCLUSIVE
    )


def items_of(night: Night, name: str, tonight: Night) -> Mapping[int, tuple[str, float]]:
    found = night.slices.get(name)
    same = found is not None and found.slice_version == tonight.slices[name].slice_version
    return found.items if found is not None and same else {}


@examples(gate=60, nightly=2_000)
@given(st.integers(0, 2**32), st.integers(1, 24))
def test_the_verdict_is_that_of_the_reference(seed: int, count: int) -> None:
    draw = random.Random(seed)
    rule = NightRule(
        false_alarms=draw.choice((0.001, 0.2)),
        margin=draw.choice((0.05, 0.3)),
        windows=draw.choice(((1, 3, 7), (2,), (1, 2, 5))),
        history_nights=draw.choice((4, 28)),
        version_nights=draw.choice((2, 14)),
    )
    nights, version, quality = [], OLD, 0.95
    for day in range(count):
        if draw.random() < 0.15:
            version, quality = draw.choice((OLD, NEW, {"pool": "three"})), draw.choice((0.95, 0.4))
        names = [name for name in ("facts", "lists") if draw.random() < 0.9] or ["facts"]
        scored = {name: {seed: float(draw.random() < quality) for seed in part(day, items=12)} for name in names}
        nights.append(night(day, scored, version, draw.choice("1111112")))
    found = judge(nights, rule)
    assert {one.slice: one.decision for one in found.slices} == {
        name: reference(nights, name, rule) for name in nights[-1].slices
    }
    worst = [one.decision for one in found.slices]
    expected = next((each for each in (Decision.FAIL, Decision.INCONCLUSIVE) if each in worst), Decision.PASS)
    assert found.decision is expected
    assert judge(nights, rule) == found


# what people see


def test_equal_nights_pass_once_every_item_has_a_history() -> None:
    nights = sound(30)
    first = judge(nights[:1], RULE)
    assert (first.decision, first.reason) == (Decision.INCONCLUSIVE, "2 of 2 slices not decided: facts, lists")
    assert first.slices[0].reason == "no history: no earlier night has answered these items"
    assert first.slices[0].against is None
    verdicts = [judge(nights[: day + 1], RULE) for day in range(30)]
    assert [each.decision for each in verdicts[:5]] == [Decision.INCONCLUSIVE] * 5
    assert verdicts[4].slices[0].reason.startswith("too few items: 40 of about ")
    assert all(each.decision is Decision.PASS for each in verdicts[5:])
    assert verdicts[-1].slices[0].reason == "not worse by 5.0 points or more: above -1.9 points"
    assert verdicts[-1].changed == ()


def test_a_new_version_that_is_worse_fails_and_the_slice_and_the_change_are_named() -> None:
    nights = sound(8)
    for day in (8, 9, 10):
        nights.append(night(day, {"facts": part(day), "lists": part(day, lost=0.25)}, NEW))
    found = judge(nights, RULE)
    assert found.decision is Decision.FAIL
    assert [one.slice for one in found.failed] == ["lists"]
    assert found.changed == ("pool: one -> two",)
    assert found.version_since == date(2026, 1, 9)
    [failed] = found.failed
    assert (failed.against, failed.nights, failed.items) == (Against.VERSION_BEFORE, 3, 120)
    assert failed.difference == -0.25
    assert failed.reason.startswith("-25.0 points over 120 items of the last 3 nights, below -")
    assert failed.reason.endswith("against the version before")
    assert found.slices[0].decision is Decision.PASS


def test_a_slice_that_fails_against_both_references_names_the_version_before() -> None:
    """Fault: a greater loss against its own history hid that it was worse than before, and nothing was rolled back."""
    nights = sound(8)
    for day in (8, 9, 10, 11):
        nights.append(night(day, {"lists": part(day, lost=0.3)}, NEW))
    nights.append(night(12, {"lists": part(12, lost=0.9)}, NEW))
    [failed] = judge(nights, RULE).failed
    assert (failed.against, failed.nights) == (Against.VERSION_BEFORE, 5)
    [of_own] = judge(nights[8:], RULE).failed
    assert of_own.against is Against.HISTORY
    assert of_own.upper < failed.upper


def test_a_gross_loss_that_no_version_records_fails_the_first_night_against_the_models_own_history() -> None:
    nights = [*sound(8), night(8, {"facts": part(8), "lists": part(8, lost=0.7)})]
    found = judge(nights, RULE)
    assert [(one.slice, one.against, one.nights) for one in found.failed] == [("lists", Against.HISTORY, 1)]
    assert found.changed == ()
    assert found.reason == "1 of 2 slices worse: lists"


def test_a_small_loss_adds_up_over_nights() -> None:
    nights, decisions = sound(8), []
    for day in (8, 9, 10):
        nights.append(night(day, {"facts": part(day), "lists": part(day, lost=0.2)}))
        decisions.append(judge(nights, RULE).decision)
    assert decisions[0] is Decision.INCONCLUSIVE
    assert decisions[-1] is Decision.FAIL


def test_what_was_put_back_does_not_fail_for_its_bad_nights() -> None:
    nights = [*sound(8), *(night(day, {"lists": part(day, lost=0.5)}, NEW) for day in (8, 9))]
    assert judge(nights, RULE).decision is Decision.FAIL
    nights.append(night(10, {"lists": part(10)}, OLD))
    found = judge(nights, RULE)
    assert found.failed == ()
    assert found.changed == ("pool: two -> one",)


def test_a_loss_that_is_over_tonight_raises_no_alarm() -> None:
    nights = [
        *sound(8),
        *(night(day, {"lists": part(day, lost=0.5)}) for day in (8, 9)),
        night(10, {"lists": part(10)}),
    ]
    found = judge(nights, RULE)
    assert found.failed == ()
    assert "tonight alone is not lower" in found.slices[0].reason


def test_a_changed_slice_and_one_of_a_single_template_say_why_nothing_is_decided() -> None:
    changed = judge([*sound(8), night(8, {"facts": part(8)}, slice_version="2")], RULE)
    assert changed.slices[0].reason == "no history: the slice's items have changed since the last night"
    alone = [
        msgspec.structs.replace(
            each, slices={"facts": SliceNight("1", dict.fromkeys(each.slices["facts"].items, ("t", 1.0)))}
        )
        for each in sound(9)
    ]
    assert judge(alone, RULE).slices[0].reason.startswith("too few templates")
    with pytest.raises(ValueError, match="the last one has no slice"):
        judge([night(0, {})], RULE)


def test_a_night_spends_its_false_alarms_on_slices_and_tests_together() -> None:
    assert RULE.level(16) * 16 * 4 == pytest.approx(RULE.false_alarms)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"margin": 0.0}, "margin: must be above 0"),
        ({"false_alarms": 0.7}, "false_alarms: must be above 0 and at most 0.5"),
        ({"windows": (3, 1)}, "windows: must rise"),
        ({"history_nights": 0}, "must be 1 or more"),
    ],
)
def test_a_rule_that_no_night_could_be_judged_by_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        NightRule(**given)


def test_versions_differ_by_name() -> None:
    assert differences({"pool": "one", "engine": "a"}, {"pool": "one", "engine": "b", "hardware": "H100"}) == (
        "engine: a -> b",
        "hardware: none -> H100",
    )


@pytest.mark.nightly
def test_equal_nights_raise_no_more_alarms_than_the_bound() -> None:
    """Items that are answered by chance, each with its own share; two slices, 50 nights, 120 times."""
    alarms, repeats = 0, 120
    rule = NightRule(false_alarms=0.002)
    for repeat in range(repeats):
        draw = random.Random(repeat)
        shares = {name: [draw.betavariate(8, 1) for _ in range(PARTS * 20)] for name in ("facts", "lists")}
        nights, failed = [], False
        for day in range(54):
            scored = {
                name: {seed: float(draw.random() < each[seed]) for seed in part(day, items=20)}
                for name, each in shares.items()
            }
            nights.append(night(day, scored))
            failed = failed or (day >= PARTS and judge(nights, rule).decision is Decision.FAIL)
        alarms += failed
    assert alarms <= 0.1 * repeats + 10
