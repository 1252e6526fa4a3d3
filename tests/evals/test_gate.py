"""The gate passes on proof, fails on proof, and says so where there is none."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from benchmarks.gated.rivals import fixed_items
from evals.gate import Decision, GateVerdict, PairedItem, SliceRule, judge, judge_slice
from evals.statistics.looks import levels, looks
from evals.statistics.sizes import items_needed, passing_probability

RULE = SliceRule(correlation=0.0)


def drawn(
    count: int, *, lost: float = 0.0, won: float = 0.0, clusters: int = 10_000, seed: int = 1
) -> list[PairedItem]:
    """Items with so many flips, spread evenly."""
    draw = random.Random(seed)
    items = []
    for number in range(count):
        at = draw.random()
        baseline, candidate = (1.0, 0.0) if at < lost else (0.0, 1.0) if at < lost + won else (1.0, 1.0)
        items.append(PairedItem("lists", f"{number % clusters}", baseline, candidate))
    return items


@pytest.mark.parametrize(
    ("flip_share", "points", "power", "items"),
    # shared arithmetic of non-inferiority, one-sided at 5 %, at a true difference of nothing
    [
        (0.03, 1, 0.8, 1855), (0.03, 2, 0.8, 464), (0.03, 3, 0.8, 207), (0.03, 5, 0.8, 75),
        (0.05, 1, 0.8, 3092), (0.05, 2, 0.8, 773), (0.05, 3, 0.8, 344), (0.05, 5, 0.8, 124),
        (0.10, 1, 0.8, 6183), (0.10, 2, 0.8, 1546), (0.10, 3, 0.8, 687), (0.10, 5, 0.8, 248),
        (0.03, 2, 0.97, 933), (0.05, 2, 0.97, 1554), (0.05, 3, 0.97, 691), (0.10, 2, 0.97, 3108),
    ],
)  # fmt: skip
def test_items_for_one_look_are_the_textbooks(flip_share: float, points: int, power: float, items: int) -> None:
    assert fixed_items(flip_share, points / 100, 0.05, power) == items


def test_items_needed_are_the_textbooks_and_what_nothing_seen_takes() -> None:
    assert items_needed(0.05, 0.02, 0.05, 0.8) == pytest.approx(773, rel=0.06)
    assert items_needed(0.0, 0.02, 0.05, 0.8) == 149
    needed = items_needed(0.03, 0.02, 0.05, 0.8, rare=3.0)
    assert (
        passing_probability(needed, 0.03, 0.05, 3.0, 0.02)
        >= 0.8
        > passing_probability(needed - 1, 0.03, 0.05, 3.0, 0.02)
    )


def test_looks_double_and_spend_alpha_together() -> None:
    assert looks(200, 1600) == (200, 400, 800, 1600)
    assert looks(200, 500) == (200, 400, 500)
    assert looks(200, 164) == (164,)
    spent = levels(0.05, looks(200, 1600))
    assert sum(spent) == pytest.approx(0.05)
    assert list(spent) == sorted(spent)


def test_no_flip_passes_only_with_the_items_that_prove_something() -> None:
    few = judge_slice(drawn(200), RULE)
    assert (few.decision, few.n, few.difference, few.next_look) == (Decision.INCONCLUSIVE, 200, 0.0, 400)
    assert few.lower < -RULE.margin, "a variance of zero is no certainty"
    enough = judge_slice(drawn(400), RULE)
    assert (enough.decision, enough.next_look, enough.items_needed) == (Decision.PASS, None, 0)
    assert -RULE.margin < enough.lower < -0.01


def test_templates_that_lose_as_one_count_for_less() -> None:
    rule = msgspec.structs.replace(RULE, correlation=1.0)
    same = judge_slice(drawn(1600, clusters=20), rule)
    assert same.decision is Decision.INCONCLUSIVE, "twenty templates without a loss do not rule out one in fifty"
    assert same.lower == pytest.approx(-3 / 20, abs=0.04)
    assert judge_slice(drawn(1600, clusters=20), RULE).decision is Decision.PASS


def test_one_template_proves_nothing() -> None:
    verdict = judge_slice(drawn(1600, clusters=1), RULE)
    assert (verdict.decision, verdict.lower, verdict.upper) == (Decision.INCONCLUSIVE, -1.0, 1.0)


def test_a_gross_loss_fails_at_the_first_look() -> None:
    verdict = judge_slice(drawn(200, lost=0.4), RULE, slices=16)
    assert (verdict.decision, verdict.n) == (Decision.FAIL, 200)
    assert verdict.upper < 0.0
    assert verdict.reason.startswith("worse: below -")


def test_losses_of_one_template_alone_fail_nothing() -> None:
    """Twelve losses in a row are significant by item; as one of forty templates they may be its bad luck."""
    items = [PairedItem("lists", str(number % 40), 1.0, 0.0 if number % 40 == 7 else 1.0) for number in range(480)]
    verdict = judge_slice(items, SliceRule(first_look=480, budget=480))
    assert verdict.decision is Decision.INCONCLUSIVE
    spread = [
        PairedItem("lists", str(number % 40), 1.0, 0.0 if number % 40 == number // 40 else 1.0) for number in range(480)
    ]
    assert judge_slice(spread, SliceRule(first_look=480, budget=480)).decision is Decision.FAIL


def test_the_first_decision_stands_however_often_it_is_asked() -> None:
    items = drawn(400) + drawn(1200, lost=0.9)
    at_400 = judge_slice(items[:400], RULE)
    assert at_400.decision is Decision.PASS
    later = judge_slice(items, RULE)
    assert (later.decision, later.n, later.lower, later.drawn) == (Decision.PASS, 400, at_400.lower, 1600)
    between = judge_slice(items[:399], RULE)
    assert (between.n, between.next_look) == (200, 400)


def test_a_budget_that_ends_says_how_many_more() -> None:
    rule = SliceRule(margin=0.01, first_look=200, budget=400)
    verdict = judge_slice(drawn(400, lost=0.05, won=0.05, seed=2), rule)
    assert (verdict.decision, verdict.next_look) == (Decision.INCONCLUSIVE, None)
    assert verdict.items_needed > 4000
    assert f"{verdict.items_needed} more were needed" in verdict.reason
    assert verdict.power_reached < 0.2


def test_what_may_fail_is_a_share_of_its_own_and_moves_no_pass() -> None:
    worse, equal = drawn(400, lost=0.05, won=0.01, seed=2), drawn(400)
    strict = msgspec.structs.replace(RULE, fail_alpha=1e-5)
    assert judge_slice(worse, RULE).decision is Decision.FAIL
    doubted = judge_slice(worse, strict)
    assert (doubted.decision, doubted.alpha, doubted.fail_alpha) == (Decision.INCONCLUSIVE, 0.05, 1e-5)
    assert judge_slice(equal, strict).decision is Decision.PASS
    assert judge_slice(equal, strict).lower == judge_slice(equal, RULE).lower


@pytest.mark.parametrize("clusters", [12, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_worse_by_the_margin_rarely_passes_and_equal_rarely_fails(clusters: int) -> None:
    """All looks together; benchmarks.eval_gate measures more of it."""
    rule = SliceRule(first_look=50, budget=200, margin=0.08)
    runs = 120

    def share(decision: Decision, lost: float, won: float) -> float:
        verdicts = (judge_slice(drawn(200, lost=lost, won=won, clusters=clusters, seed=s), rule) for s in range(runs))
        return sum(verdict.decision is decision for verdict in verdicts) / runs

    assert share(Decision.PASS, 0.1, 0.02) <= 0.05 + 0.04
    assert share(Decision.FAIL, 0.04, 0.04) <= 0.05 + 0.04
    assert share(Decision.PASS, 0.01, 0.01) >= 0.8


def of(name: str, items: list[PairedItem]) -> list[PairedItem]:
    return [msgspec.structs.replace(item, slice=name) for item in items]


def gate(**by_slice: list[PairedItem]) -> GateVerdict:
    rules = dict.fromkeys(("facts", "lists"), RULE)
    return judge({name: of(name, items) for name, items in by_slice.items()}, rules)


def test_all_slices_must_pass_and_one_fails_all() -> None:
    good, bad = drawn(400), drawn(400, lost=0.3)
    assert gate(facts=good, lists=good).decision is Decision.PASS
    failed = gate(facts=good, lists=bad)
    assert (failed.decision, failed.reason, failed.wanted) == (Decision.FAIL, "1 of 2 slices worse: lists", {})
    waiting = gate(facts=good)
    assert (waiting.decision, waiting.wanted) == (Decision.INCONCLUSIVE, {"lists": 200})
    more = gate(facts=good, lists=good[:200])
    assert (more.decision, more.wanted) == (Decision.INCONCLUSIVE, {"lists": 400})


def test_failing_costs_more_where_more_slices_may_fail() -> None:
    items = drawn(400, lost=0.05, won=0.015, seed=3)
    rule = SliceRule(first_look=400, budget=400)
    assert judge_slice(items, rule).upper < judge_slice(items, rule, slices=16).upper
    assert judge_slice(items, rule).lower == judge_slice(items, rule, slices=16).lower


def test_a_verdict_is_stored_and_read_again() -> None:
    verdict = gate(facts=drawn(400), lists=drawn(200))
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=GateVerdict) == verdict


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: SliceRule(margin=0.0), "margin: must be above 0 and below 1, got 0.0"),
        (lambda: SliceRule(alpha=0.6), "alpha: must be above 0 and at most 0.5, got 0.6"),
        (lambda: SliceRule(fail_alpha=0.0), "fail_alpha: must be above 0 and at most 0.5, got 0.0"),
        (lambda: SliceRule(correlation=2.0), "correlation: must be 0 to 1, got 2.0"),
        (lambda: SliceRule(budget=0), "at least one item, got 200 and 0"),
        (lambda: judge({}, {}), "no slice has one"),
        (lambda: judge({"code": []}, {"facts": RULE}), "code has no rule; there are facts"),
        (lambda: judge_slice([PairedItem("facts", "a", 1.0, 1.5)], RULE), "must be 0 to 1, got 1.0 and 1.5"),
        (lambda: judge_slice([PairedItem("facts", "a", 1.0, 1.0)], RULE, name="code"), "'facts' among those of 'code'"),
    ],
)
def test_what_cannot_be_judged_is_refused(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        wrong()
