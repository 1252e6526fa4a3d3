"""The scripts in a real store against their reference in dictionaries: same calls, same answers, at any time of day,
with limits that change while requests run, and gateways that die, come back and lose their store."""

from __future__ import annotations

from datetime import UTC, datetime

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from contracts.generation import Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import DAY_MS, MINUTE_MS, MONEY, NO_LIMIT, Plan, Status, amounts_of, plan_of
from tests.examples import examples
from tests.gateway.limits.reference import ReferenceLimiter
from tests.gateway.limits.store import AnyStore
from tests.gateway.limits.timed import LEASE_MS, PERCENTS, TOMB_MS, TimedStore

EDGES_MS = [1, LEASE_MS - 1, LEASE_MS, TOMB_MS - LEASE_MS, TOMB_MS, MINUTE_MS, DAY_MS, 31 * DAY_MS]
EPOCHS = ["a", "b", "c"]
START_MS = int(datetime(2026, 11, 28, 22, 0, tzinfo=UTC).timestamp() * 1_000)
optional = st.none

LIMITS = st.builds(
    Limits,
    requests_per_minute=optional() | st.integers(1, 20),
    input_tokens_per_minute=optional() | st.sampled_from([60, 1_013, 10**9]),
    output_tokens_per_minute=optional() | st.sampled_from([60, 1_013, 10**9]),
    tokens_per_minute=optional() | st.sampled_from([1, 7, 100, 1_013, 60_000, 10**9]),
    max_concurrency=optional() | st.integers(1, 3),
    tokens_per_day=optional() | st.sampled_from([50, 5_000, 100_000_000]),
    money_micro_per_month=optional() | st.sampled_from([0, 100, 12_345, 10**12]),
)
COSTS = st.builds(
    Cost,
    input_tokens=st.integers(0, 80) | st.just(10**6),
    output_tokens=st.integers(0, 80) | st.just(10**6),
    micro=st.integers(0, 60) | st.just(10**9),
)
IDS = st.integers(0, 5).map(str)


def rules_of(limits: list[Limits]) -> list[Rule]:
    places = [
        (Level.ORGANIZATION, "o", None),
        (Level.ORGANIZATION, "o", Tier.CHAT),
        (Level.PROJECT, "p", None),
        (Level.KEY, "k", Tier.CHAT),
    ]
    return [Rule(*place, each) for place, each in zip(places, limits, strict=False)]


def planned(limits: list[Limits]) -> Plan:
    plan = plan_of("t", Levels.of("o", rules_of(limits)), Tier.CHAT)
    assert plan is not None
    return plan


class Comparison(RuleBasedStateMachine):
    client: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.store = TimedStore(self.client)
        self.reference = ReferenceLimiter(LEASE_MS, TOMB_MS, PERCENTS)
        self.now_ms = START_MS
        self.began_under: dict[str, Plan] = {}
        self.tokens = 0

    @initialize(limits=st.lists(LIMITS.filter(bool), min_size=1, max_size=4))
    def make_plan(self, limits: list[Limits]) -> None:
        self.client.flushdb()
        self.limits = limits
        self.plan = planned(limits)

    @rule(which=st.integers(0, 3), limits=LIMITS.filter(bool))
    def limits_change(self, which: int, limits: Limits) -> None:
        which %= len(self.limits)
        self.limits = [*self.limits[:which], limits, *self.limits[which + 1 :]]
        self.plan = planned(self.limits)

    @rule(number=IDS, epoch=st.sampled_from(EPOCHS), cost=COSTS)
    def reserve(self, number: str, epoch: str, cost: Cost) -> None:
        theirs = self.store.reserve(self.now_ms, self.plan, epoch, number, cost)
        ours = self.reference.reserve(self.now_ms, self.plan, epoch, number, cost)
        assert theirs == ours
        if ours.status is Status.ADMITTED:
            self.began_under.setdefault(number, self.plan)
        if ours.status is Status.REFUSED and ours.counter <= 4:
            rule, amount = self.plan.rules[ours.rule - 1], amounts_of(1, cost)[ours.counter - 1]
            left = ours.left[7 * (ours.rule - 1) + ours.counter - 1]
            assert left + ours.wait_ms * rule.limits[ours.counter - 1] >= amount * MINUTE_MS  # the wait is enough

    @rule(number=IDS, used=COSTS, refund=st.booleans())
    def settle(self, number: str, used: Cost, refund: bool) -> None:
        plan = self.began_under.pop(number, self.plan)
        for _ in range(2):  # the second one is a no-op, on both sides
            theirs = self.store.settle(self.now_ms, plan, number, 0 if refund else 1, used)
            assert theirs == self.reference.settle(self.now_ms, plan, number, 0 if refund else 1, used)

    @rule(epoch=st.sampled_from(EPOCHS))
    def beat(self, epoch: str) -> None:
        assert self.store.beat(self.now_ms, self.plan, epoch) == self.reference.beat(self.now_ms, epoch)

    @rule(number=IDS, epoch=st.sampled_from(EPOCHS), cost=COSTS)
    def announce(self, number: str, epoch: str, cost: Cost) -> None:
        theirs = self.store.announce(self.now_ms, self.plan, epoch, number, cost)
        assert theirs == self.reference.announce(self.now_ms, self.plan, epoch, number, cost)

    @rule(number=IDS)
    def retire(self, number: str) -> None:
        assert self.store.retire(self.now_ms, self.plan, number) == self.reference.retire(self.now_ms, number)

    @rule(which=st.integers(0, 3), ledger_micro=st.integers(0, 200), announced=IDS)
    def count_money_anew(self, which: int, ledger_micro: int, announced: str) -> None:
        planned = self.plan.rules[which % len(self.plan.rules)]
        self.tokens += 1
        token = str(self.tokens)
        begun = self.store.begin(self.now_ms, planned.key, token)
        assert begun == self.reference.begin(self.now_ms, planned.name, token)
        self.announce(announced, "a", Cost())  # one that may run is left out of the ledger's sum
        ids = self.store.ids(self.now_ms, planned.key, token)
        assert ids == self.reference.ids(self.now_ms, planned.name, token)
        month = datetime.fromtimestamp(self.now_ms / 1_000, UTC)
        number = month.year * 12 + month.month - 1
        theirs = self.store.seed(self.now_ms, planned.key, token, ledger_micro, len(ids or ()), number)
        assert theirs == self.reference.seed(self.now_ms, planned.name, token, ledger_micro, len(ids or ()))

    @rule(which=st.integers(0, 3))
    def unseed(self, which: int) -> None:
        planned = self.plan.rules[which % len(self.plan.rules)]
        self.store.unseed(self.now_ms, planned.key)
        self.reference.unseed(self.now_ms, planned.name)

    @rule(which=st.integers(0, 3), percent=st.sampled_from(PERCENTS))
    def told(self, which: int, percent: int) -> None:
        planned = self.plan.rules[which % len(self.plan.rules)]
        month = datetime.fromtimestamp(self.now_ms / 1_000, UTC)
        budget = planned.limits[MONEY]
        self.store.told(self.now_ms, planned.key, percent, month.year * 12 + month.month - 1, budget)
        self.reference.told(self.now_ms, planned.name, percent, budget)

    @rule()
    def store_restarts_with_its_data(self) -> None:
        self.store.incarnation = self.reference.incarnation = f"{self.store.incarnation}1"

    @rule()
    def data_is_lost(self) -> None:
        self.client.flushdb()
        self.reference.forget_everything()

    @rule(ms=st.integers(0, 70_000) | st.sampled_from(EDGES_MS))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(ms=st.integers(1, 100_000) | st.sampled_from(EDGES_MS))
    def clock_is_set_back(self, ms: int) -> None:
        self.now_ms -= ms

    @invariant()
    def nothing_exceeds_its_capacity(self) -> None:
        if not hasattr(self, "plan"):
            return
        left = self.reference.look(self.now_ms, self.plan, "nobody")
        assert self.store.look(self.now_ms, self.plan, "nobody") == left
        for at, planned in enumerate(self.plan.rules):
            for position, limit in enumerate(planned.limits):
                if limit != NO_LIMIT and position != 4:
                    capacity = limit * MINUTE_MS if position < 4 else limit
                    assert left[7 * at + position] <= capacity


@pytest.mark.hypothesis
def test_scripts_and_twin_agree(store: AnyStore) -> None:
    with store.client() as client:
        if client.connection_pool.connection_kwargs.get("path") is None:
            pytest.skip("flushes the database: only on a store of our own")
        machine = type("Machine", (Comparison,), {"client": client})
        run_state_machine_as_test(
            machine,
            settings=examples(
                nightly=2_000,
                gate=20,
                stateful_step_count=40,
                phases=(Phase.explicit, Phase.reuse, Phase.generate),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
