"""Slow replicas are taken out; one organization whose requests are slow, for whatever reason, takes none away."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.decisions import Decision, ProbeGeneration
from router.core.events import Event, GenerationProbed, Probe
from router.core.latency_model import JUMP, RATIO_LIMITS, RATIO_STEP, SHORTEST_S
from router.core.outliers import OUTLIER_RATIO, OUTLIER_REPORTS, SLOW_PROBES
from router.core.slowness import CELLS, FRESH_S, LARGEST_STEP, Slowness, cell_of
from router.core.teachers import KEPT, OTHERS_ENOUGH, Teachers
from tests.examples import examples
from tests.router.core_driver import Core
from tests.router.fakes import fleet

THREE = ("r1", "r2", "r3")


def distinct(count: int) -> list[str]:
    """Names of organizations that are voices of their own."""
    found: dict[int, str] = {}
    for number in itertools.count():
        found.setdefault(cell_of(f"o{number}"), f"o{number}")
        if len(found) == count:
            return list(found.values())
    raise AssertionError


MALLORY, ALICE, BOB = distinct(3)


class Timed(Core):
    """A core whose probes are answered after `probe_s`, which tells by replica how long its engine takes."""

    def __init__(self, probe_s: Callable[[str], float], **settings: Any) -> None:
        super().__init__(fleet(replicas=THREE, max_concurrency=100), **settings)
        self.probe_s = probe_s
        self.probes = 0

    def do(self, event: Event) -> list[Decision]:
        decisions = super().do(event)
        for decision in decisions:
            if isinstance(decision, ProbeGeneration):
                self.probes += 1
                self.now += self.probe_s(decision.replica_id)
                super().do(GenerationProbed(decision.replica_id, Probe.WELL))
        return decisions

    def open(self) -> list[str]:
        return [name for name in THREE if self.core.fleet.replicas[name].breaker.open]


@pytest.mark.parametrize(("share", "factor"), [(1.0, 20), (0.7, 30), (0.5, 30), (0.97, 1_000)])
def test_one_organizations_slow_requests_take_no_replica_from_the_others(share: float, factor: float) -> None:
    """As the attack was: it opened after 27, 42 and 168 requests."""
    core, chance = Timed(lambda replica: 0.02), random.Random(1)
    core.learn(0.0001, THREE, rounds=10)
    for _ in range(400):
        for name in ("r1", "r2"):
            core.served(800, 0.09, replica_id=name, organization_id=ALICE)
        mallorys = chance.random() < share
        core.served(
            800, 0.09 * (factor if mallorys else 1), replica_id="r3", organization_id=MALLORY if mallorys else ALICE
        )
        assert core.open() == []
    assert core.probes > 0 or share < 1, "who is alone there has it probed"


def test_a_replica_that_two_organizations_find_far_too_slow_is_out_without_a_probe() -> None:
    core = Timed(lambda replica: 0.02)
    core.learn(0.0001, THREE, rounds=10)
    for number in range(3 * OUTLIER_REPORTS):
        for name, factor in (("r1", 1), ("r2", 1), ("r3", 20)):
            if name not in core.open():
                core.served(800, 0.09 * factor, replica_id=name, organization_id=(ALICE, BOB)[number % 2])
        if core.open():
            break
    assert core.open() == ["r3"]
    assert core.probes == 0


def test_where_one_organization_is_all_there_is_probes_tell_and_a_slow_engine_is_out() -> None:
    core = Timed(lambda replica: 0.4 if replica == "r3" else 0.02)
    core.learn(0.0001, THREE, rounds=10)
    for _ in range(3 * OUTLIER_REPORTS):
        for name, factor in (("r1", 1), ("r2", 1), ("r3", 20)):
            core.served(800, 0.09 * factor, replica_id=name, organization_id=ALICE)
        if core.open():
            break
    assert core.open() == ["r3"]
    assert core.probes == SLOW_PROBES
    assert "times slower" in core.core.fleet.replicas["r3"].breaker.reason


def test_a_probe_that_waits_behind_others_prompts_is_no_evidence_unless_nobody_else_is_there() -> None:
    for others, opens in ((True, False), (False, True)):
        core = Timed(lambda replica: 5.0 if replica == "r3" else 0.02, slos=())
        core.learn(0.0001, THREE, rounds=10)
        core.now += FRESH_S  # whoever taught it is gone
        core.placed("in front", prompt_tokens=800, excluded_replicas=("r1", "r2"), organization_id=MALLORY)
        for _ in range(3 * OUTLIER_REPORTS):
            if core.open():
                break
            for name in ("r1", "r2"):
                core.served(800, 0.09, replica_id=name, organization_id=ALICE if others else MALLORY)
            core.served(800, 1.8, replica_id="r3", organization_id=MALLORY)
            core.now += 1.0
        assert core.probes >= SLOW_PROBES
        assert bool(core.open()) is opens


class PlainSlowness:
    """The value after a history, told by going through all of it again for each voice."""

    def __init__(self) -> None:
        self.history: list[tuple[float, str, float]] = []

    def value(self) -> float:
        if not self.history:
            return 1.0
        now = self.history[-1][0]
        values = []
        for cell in range(CELLS):
            own, count, last = 0.0, 0, -math.inf
            for index, (at, who, observed_s) in enumerate(self.history):
                if cell_of(who) != cell:
                    continue
                heard = {cell_of(one) for then, one, _ in self.history[: index + 1] if at - then <= FRESH_S}
                count, last = count + 1, at
                step = max(min(RATIO_STEP * len(heard), LARGEST_STEP), 1 / (count + 4))
                error = math.log(max(observed_s, SHORTEST_S) / 0.1) - own
                own += step * max(-JUMP, min(JUMP, error))
                own = max(math.log(RATIO_LIMITS[0]), min(math.log(RATIO_LIMITS[1]), own))
            if now - last <= FRESH_S:
                values.append(math.exp(own))
        return sorted(values)[(len(values) - 1) // 2]


REPORTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 5.0, 50.0]), st.sampled_from([f"o{n}" for n in range(12)]), st.floats(0.0, 9.0)
    ),
    max_size=40,
)


@examples(nightly=150)
@given(REPORTS)
def test_slowness_is_what_its_history_makes_it(reports: list[tuple[float, str, float]]) -> None:
    slowness, plain, now = Slowness(), PlainSlowness(), 0.0
    for pause_s, who, observed_s in reports:
        now += pause_s
        slowness.learn(who, observed_s, 0.1, now)
        plain.history.append((now, who, observed_s))
        assert slowness.value == pytest.approx(plain.value())


HONEST = [one for one in distinct(CELLS) if one != MALLORY]


@examples(nightly=150)
@given(
    st.integers(1, CELLS - 1),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, CELLS - 1), st.floats(0.5, 2.0), st.floats(0.001, 1_000.0)),
        max_size=120,
    ),
)
def test_one_voice_moves_no_verdict_beyond_what_the_others_find(
    others: int, reports: list[tuple[bool, int, float, float]]
) -> None:
    """The others find it from half to twice as slow as its pool; Mallory's factor is anything."""
    slowness = Slowness()
    for who in HONEST[:others]:
        slowness.learn(who, 0.1, 0.1, 0.0)
    for mallorys, pick, honest, any_factor in reports:
        if mallorys:
            slowness.learn(MALLORY, 0.1 * any_factor, 0.1, 0.0)
        else:
            slowness.learn(HONEST[pick % others], 0.1 * honest, 0.1, 0.0)
        assert slowness.value <= 2.0 + 1e-9
        if others > 1:
            assert slowness.value >= 0.5 - 1e-9


@examples(nightly=150)
@given(st.lists(st.sampled_from([MALLORY] * 6 + [ALICE, BOB]), max_size=400))
def test_one_organization_teaches_at_most_as_much_as_all_others(names: list[str]) -> None:
    teachers = Teachers()
    admitted: list[tuple[int, str]] = []
    for at, name in enumerate(names):
        weights = {
            who: sum(KEPT ** (at + 1 - then - 1) for then, one in admitted if one == who) * KEPT for who in names
        }
        own, others = weights[name], sum(weights.values()) - weights[name]
        allowed = others < OTHERS_ENOUGH or own + 1.0 <= others
        assert teachers.admits(name) is allowed
        if allowed:
            admitted.append((at + 1, name))


def test_the_pools_rates_are_the_others_however_much_one_organization_sends() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1_000), slos=())
    core.learn(0.0001)
    latency_model = core.core.fleet.pools["pool"].latency_model
    before_s = latency_model.first_token_s(1_000, 500_000.0, 0)
    for number in range(1_500):
        core.served(1_000, 0.11 if number % 10 == 0 else 0.33, organization_id=ALICE if number % 10 == 0 else MALLORY)
    assert latency_model.first_token_s(1_000, 500_000.0, 0) < 1.35 * before_s


def test_memory_is_bounded_however_many_organizations_there_are() -> None:
    slowness = Slowness()
    for number in range(10_000):
        slowness.learn(f"organization-{number}", 0.1, 0.1, float(number))
    assert len(slowness.voices(10_000.0)) <= CELLS


def test_an_organization_alone_is_believed_as_before() -> None:
    slowness, observed = Slowness(), 0.0
    for number in range(60):
        slowness.learn(ALICE, 2.0, 0.1, float(number))
        observed = slowness.value
    assert observed > OUTLIER_RATIO
