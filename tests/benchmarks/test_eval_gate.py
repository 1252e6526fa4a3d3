"""The benchmark of the eval gate draws what it says, and asks both sides the same until the gate has decided."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import cast

import pytest

from benchmarks import eval_gate
from benchmarks.gated.picture import draw
from benchmarks.gated.real import Baseline, Side, batchings, compare
from benchmarks.gated.rivals import looked_at_repeatedly, unpaired
from benchmarks.gated.simulated import Clusters, answers, measure
from evals.gate import Decision, PairedItem, SliceRule, judge_slice
from evals.slices.item import Question
from tools.quantization.asking import Asked


@pytest.mark.parametrize("clusters", [Clusters(0, 0.0), Clusters(400, 0.2)])
def test_simulated_answers_lose_and_win_as_often_as_asked(clusters: Clusters) -> None:
    items = answers(random.Random(1), 20_000, clusters, 0.05, 0.02)
    differences = [item.candidate - item.baseline for item in items]
    assert differences.count(-1.0) / len(items) == pytest.approx(0.05, abs=0.01)
    assert differences.count(1.0) / len(items) == pytest.approx(0.02, abs=0.01)
    assert len({item.cluster for item in items}) == (clusters.templates or len(items))


def test_templates_lose_together_as_much_as_asked() -> None:
    items = answers(random.Random(2), 40_000, Clusters(400, 0.2), 0.1, 0.0)
    lost: dict[str, list[float]] = {}
    for item in items:
        lost.setdefault(item.cluster, []).append(item.baseline - item.candidate)
    shares = [sum(values) / len(values) for values in lost.values()]
    variance = sum((share - 0.1) ** 2 for share in shares) / len(shares)
    assert variance / (0.1 * 0.9) == pytest.approx(0.2, abs=0.04)


def test_the_rivals_say_what_their_rules_say() -> None:
    rule = SliceRule(first_look=100, budget=400, margin=0.03)
    worse = [PairedItem("a", str(n), 1.0 if n % 5 else 0.0, 1.0 if n % 5 and n % 25 != 1 else 0.0) for n in range(400)]
    assert judge_slice(worse, rule).decision is Decision.FAIL
    assert unpaired(worse, rule) is Decision.PASS, "four points lost of eighty are missed"
    same = [PairedItem("a", str(n), 1.0, 1.0) for n in range(100)]
    assert looked_at_repeatedly(same, rule) is Decision.PASS, "a variance of zero is taken for certainty"
    assert judge_slice(same, rule).decision is Decision.INCONCLUSIVE


def test_a_measurement_is_the_same_twice() -> None:
    rule = SliceRule(first_look=50, budget=100, margin=0.1)
    first, second = (measure(Clusters(10, 0.05), 0.03, -0.1, rule, 5) for _ in range(2))
    assert first == second
    assert set(first.decided) == {"gate", "unpaired", "repeated"}


def test_chance_explains_so_many_failures() -> None:
    assert eval_gate.most(50, 0.05) == 8
    assert eval_gate.most(400, 0.05) == 35


class FakeAsked:
    """Answers rightly, and wrongly where it is told to; counts."""

    def __init__(self, wrong: frozenset[str] = frozenset()) -> None:
        self.asked: list[str] = []
        self._wrong = wrong

    def answers(self, questions: Sequence[Question], *, temperature: float = 0.0, seed: int = 0) -> list[str]:
        self.asked += [str(question.messages) for question in questions]
        return ["" if question.slice in self._wrong else question.reference for question in questions]  # type: ignore[attr-defined]


def test_both_are_asked_the_same_until_the_gate_has_decided() -> None:
    rules = dict.fromkeys(("facts", "lists"), SliceRule(first_look=60, budget=240, margin=0.05, correlation=0.0))
    sound, equal, broken = FakeAsked(), FakeAsked(), FakeAsked(frozenset({"lists"}))
    baseline = Baseline(Side(cast(Asked, sound)))
    passed = compare(baseline, Side(cast(Asked, equal)), rules, 5_000)
    assert passed.decision is Decision.PASS
    assert sound.asked == equal.asked
    assert len(equal.asked) == sum(one.drawn for one in passed.slices) == 240
    failed = compare(baseline, Side(cast(Asked, broken)), rules, 5_000)
    assert (failed.decision, failed.reason) == (Decision.FAIL, "1 of 2 slices worse: lists")
    assert len(broken.asked) == 120, "a gross loss ends the run at the first look"
    assert len(sound.asked) == 240, "what the baseline has answered is not asked again"


def test_batchings_differ() -> None:
    first, second = batchings("a")
    assert first.scheduler.max_running != second.scheduler.max_running
    assert first.scheduler.max_batch_tokens != second.scheduler.max_batch_tokens


def test_the_picture_has_a_line_for_each_curve() -> None:
    shown = draw("Power", {"3 %": [(50, 0.0), (3_200, 1.0)], "10 %": [(50, 0.0), (3_200, 0.5)]})
    assert shown.count("<polyline") == 2
    assert 'points="64.0,324.0 570.0,48.0"' in shown


def test_the_last_line_is_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["eval_gate", "--parts", "simulated", "--runs", "2", "--quick"])
    eval_gate.main()
    shown = capsys.readouterr().out.strip().split("\n")
    assert json.loads(shown[-1]) == {"aa_fail_rate": None, "defects_caught": None, "inconclusive": None}
    assert len(shown) == 2 + 20 + 1
