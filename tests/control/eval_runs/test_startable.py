"""A release is not started with slices that it cannot pass, and is told what would do."""

from __future__ import annotations

import re

import msgspec
import pytest

from contracts.desired_state import Model
from contracts.errors import InvalidField
from contracts.generation import Tier
from control.eval_runs.config import EvalsConfig
from control.eval_runs.startable import ConfiguredSlices, alike_of, require_passable, too_few
from control.eval_runs.verdicts import rules_of
from control.evals.store import Rule
from control.releases.judge import Policy, least_requests
from control.releases.margins import MAX_PROMOTED, PROMOTED, PROMOTION_ALPHA, QUANTILES, TAILS, Margins
from control.releases.rollout.config import ReleasesConfig
from control.slices.startable import SliceRule, require_asked
from evals.gate import PairedItem, judge_slice
from evals.gate import SliceRule as GateRule
from evals.sandbox.sandbox import Sandbox
from evals.slices.code_edits import EDIT_SLICES
from evals.slices.code_tests import slice_in
from evals.slices.item import Source
from evals.slices.registry import find
from evals.statistics.looks import levels, looks
from evals.statistics.sizes import least_budget, least_margin
from tests.control.eval_runs.answering import Numbers


@pytest.mark.parametrize("name", ["json", "arithmetic", "facts", "instructions"])
def test_the_margin_is_the_one_by_which_the_gate_passes_equal_answers(name: str) -> None:
    source, counts = find(name), looks(200, 1_600)
    items = [PairedItem(name, source.item(seed).cluster, 1.0, 1.0) for seed in range(1_600)]
    least = least_margin(counts, levels(0.05, counts), alike_of(source, 400)[0], 0.05)
    for factor, decision in ((0.9, "inconclusive"), (1.1, "pass")):
        assert judge_slice(items, GateRule(margin=least * factor)).decision.value == decision


async def test_a_slice_of_few_templates_is_refused_with_the_margin_that_would_do() -> None:
    slices = ConfiguredSlices(EvalsConfig())
    with pytest.raises(
        InvalidField, match=r"'json' cannot pass at a margin of 2 points: its 1600 items.*9 templates"
    ) as said:
        await slices.require(["facts", "json"], SliceRule(), 0.05)
    assert said.value.param == "slice_rule.margins"
    found = re.search(r"slice_rule\.margins\.json to ([\d.]+) or more", said.value.message)
    assert found is not None
    await slices.require(["facts", "json"], SliceRule(margin=float(found[1])), 0.05)
    await slices.require(["facts", "json"], SliceRule(margins={"json": float(found[1])}), 0.05)
    with pytest.raises(InvalidField):
        await slices.require(["json"], SliceRule(margin=float(found[1]) - 0.001), 0.05)
    await slices.require(["json"], SliceRule(correlation=0.0), 0.05)


@pytest.mark.parametrize(
    "one",
    [*map(find, ("facts", "lists", "repeat", "arithmetic", "retrieval-100")), *EDIT_SLICES, slice_in(Sandbox())],
    ids=lambda one: one.name,
)
def test_other_slices_can_pass_by_the_default_rule(one: Source) -> None:
    require_passable(one, SliceRule(), 0.05)


async def test_all_slices_are_listed_and_each_may_be_named() -> None:
    slices = ConfiguredSlices(EvalsConfig())
    listed = await slices.all()
    assert [each.name for each in listed] == list(EvalsConfig().catalogue().names)
    assert all(each.about for each in listed)
    # items of retrieval-4000 take long to make, and those of retrieval-500 are made by the same generator
    named = [each.name for each in listed if each.name not in ("retrieval-2000", "retrieval-4000")]
    await slices.require(named, SliceRule(margin=0.9), 0.05)


async def test_a_slice_is_asked_of_models_of_its_tier_alone() -> None:
    slices = ConfiguredSlices(EvalsConfig())
    chat, code = (Model("m", tier, "p", 4_096) for tier in (Tier.CHAT, Tier.AUTOCOMPLETE))
    names = {tier: [each.name for each in await slices.all() if each.tier is tier] for tier in Tier}
    assert names[Tier.AUTOCOMPLETE] == ["code_exact", "code_similarity", "code_parses", "code_tests"]
    await slices.require_tier(names[Tier.CHAT], chat)
    await slices.require_tier(names[Tier.AUTOCOMPLETE], code)
    with pytest.raises(
        InvalidField, match=r"'m' is of the tier autocomplete, and the slice 'json' asks conv.*code_ex"
    ) as no:
        await slices.require_tier(["code_exact", "json"], code)
    assert no.value.param == "slices"
    with pytest.raises(InvalidField, match=r"'m' is of the tier chat, and the slice 'code_parses' asks for.*: facts, "):
        await slices.require_tier(["json", "code_parses"], chat)


async def test_a_slice_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(InvalidField, match="There is no slice 'fact'; slices: facts, refusals") as said:
        await ConfiguredSlices(EvalsConfig()).require(["facts", "fact"], SliceRule(), 0.05)
    assert said.value.param == "slices"


def test_a_margin_of_one_slice_is_its_own_and_of_no_other() -> None:
    rules = rules_of([find("facts"), find("json")], Rule(margin=0.01, margins={"json": 0.03}), 400)
    assert (rules["facts"].margin, rules["json"].margin) == (0.01, 0.03)
    with pytest.raises(InvalidField, match=r"rule\.margins names the slice 'json', which is not asked; slices: facts"):
        require_asked("rule.margins", {"json": 0.03}, ["facts"])


def test_quantiles_are_the_judges_own_where_nobody_said_and_make_a_policy() -> None:
    assert Policy().promotion_alpha == PROMOTION_ALPHA
    assert Policy().quantiles == QUANTILES
    assert QUANTILES[-TAILS:] == Policy().tail_quantiles
    assert Policy().promoted_quantile == PROMOTED
    for given, tails, promoted in (
        (Margins(quantiles=[0.5, 0.8, 0.9]), (0.5, 0.8, 0.9), 0.9),
        (Margins(quantiles=[0.5, 0.9, 0.99, 0.999]), (0.9, 0.99, 0.999), 0.99),
        (Margins(promoted_quantile=0.9), (0.9, 0.95, 0.99, 0.995), 0.9),
        (Margins(quantiles=[0.5]), (0.5,), 0.5),
    ):
        given.require_quantiles()
        policy = msgspec.convert(given.given(), Policy)
        assert (policy.tail_quantiles, policy.promoted_quantile) == (tails, promoted)


def test_the_highest_promoted_quantile_is_the_highest_that_the_baseline_can_measure() -> None:
    read = ReleasesConfig().baseline_requests
    for quantile, measured in ((MAX_PROMOTED, True), (MAX_PROMOTED + 1e-6, False)):
        given = Margins(quantiles=[0.9, quantile])
        assert (least_requests(msgspec.convert(given.given(), Policy)) <= read) is measured
        if measured:
            given.require_quantiles()
        else:
            with pytest.raises(InvalidField, match=r"up to 0\.9995"):
                given.require_quantiles()


@pytest.mark.parametrize(("first_look", "margin"), [(200, 0.02), (200, 0.01), (1, 0.02), (5, 0.2)])
def test_the_least_budget_is_the_one_at_which_equal_answers_pass(first_look: int, margin: float) -> None:
    budget = least_budget(first_look, 0.05, margin, 100_000)
    assert budget is not None
    assert least_budget(first_look, 0.05, margin, budget - 1) is None
    for items, decision in ((budget - 1, "inconclusive"), (budget, "pass")):
        rule = GateRule(margin=margin, first_look=min(first_look, items), budget=items)
        alone = [PairedItem("facts", str(seed), 1.0, 1.0) for seed in range(items)]
        assert judge_slice(alone, rule).decision.value == decision


def test_slices_with_too_few_items_are_told_together_with_what_would_do() -> None:
    facts, lists, short = find("facts"), find("lists"), Numbers("short", 5)
    assert list(too_few([facts, lists], Rule(), 1_600)) == []
    (told,) = too_few([facts, lists, short], Rule(), 5)
    assert told.startswith("facts, lists, short cannot pass: equal answers to 5 items show")
    own, few = too_few([facts, lists, short], Rule(margins={"facts": 0.001}), 400)
    assert own.startswith("facts cannot pass: equal answers to 400 items show")
    assert few.startswith("short cannot pass: equal answers to 5 items show")
    margin = re.search(r"--margin ([\d.]+)", few)
    assert margin is not None
    assert list(too_few([lists, short], Rule(margin=float(margin[1])), 400)) == []
    assert list(too_few([lists, short], Rule(margin=float(margin[1]) - 0.001), 400)) != []
