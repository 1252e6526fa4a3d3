"""Clocks that are wrong and are set: scripts and reference, under a clock that jumps either way over midnight
and over a month's end, with gateways that die meanwhile."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from contracts.errors import BudgetUnavailable
from contracts.generation import Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Limits
from gateway.limits.local import DAYS_KEPT, LONGEST_LEASE_MS
from gateway.limits.plan import DAY_MS, MINUTE_MS, Decision, Plan, Status
from tests.examples import examples
from tests.gateway.limits.ledgers import Platform
from tests.gateway.limits.reference import StandIn
from tests.gateway.limits.store import AnyStore
from tests.gateway.limits.timed import LEASE_MS, TOMB_MS, TimedStore, fresh, one_rule

HOUR_MS = 60 * MINUTE_MS
MONTH_END_MS = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1_000)


@pytest.fixture(params=["scripts", "stand-in"])
def limiter(request: pytest.FixtureRequest, timed: TimedStore) -> TimedStore | StandIn:
    """Whatever counts tokens: the scripts, and what a gateway does without Valkey."""
    return timed if request.param == "scripts" else StandIn(LEASE_MS, TOMB_MS)


def use(limiter: Any, now_ms: int, plan: Plan, cost: Cost) -> Decision:
    """One request from beginning to end, if it is admitted."""
    name = uuid.uuid4().hex
    decided: Decision = limiter.reserve(now_ms, plan, "e", name, cost)
    if decided.status is Status.ADMITTED:
        limiter.settle(now_ms, plan, name, 1, cost)
    return decided


def seed(timed: TimedStore, now_ms: int, plan: Plan, micro: int) -> None:
    """The ledger's sum, whatever month it is."""
    key = plan.rules[0].key
    begun = timed.run(timed.script("x").upkeep("begin", [key], "t"), now_ms)
    assert begun[0] == 1
    assert timed.seed(now_ms, key, "t", micro, 0, begun[2]) == 1


def test_a_clock_set_back_over_midnight_leaves_a_days_limit_in_force(limiter: TimedStore | StandIn) -> None:
    """As the review did it, with 300 times the limit let through."""
    plan, midnight_ms = fresh(Limits(tokens_per_day=1_000)), 20_000 * DAY_MS
    assert use(limiter, midnight_ms + 10 * MINUTE_MS, plan, Cost(0, 100)).status is Status.ADMITTED
    before_ms = midnight_ms - 10 * MINUTE_MS
    admitted = sum(use(limiter, before_ms, plan, Cost(0, 100)).status is Status.ADMITTED for _ in range(300))
    assert admitted == 10
    assert use(limiter, before_ms, plan, Cost(0, 100)).wait_ms == 10 * MINUTE_MS
    admitted = sum(use(limiter, midnight_ms, plan, Cost(0, 100)).status is Status.ADMITTED for _ in range(300))
    assert admitted == 9, "the new day goes on where it was"


def test_a_clock_set_back_over_a_months_end_leaves_a_budget_in_force(timed: TimedStore) -> None:
    plan = fresh(Limits(money_micro_per_month=1_000))
    after_ms, before_ms = MONTH_END_MS + 10 * MINUTE_MS, MONTH_END_MS - 10 * MINUTE_MS
    seed(timed, after_ms, plan, 0)
    assert use(timed, after_ms, plan, Cost(0, 0, 700)).status is Status.ADMITTED
    for now_ms in (before_ms, after_ms, before_ms, MONTH_END_MS):
        assert use(timed, now_ms, plan, Cost(0, 0, 1)).status is Status.UNSEEDED, "nothing passes before it is counted"
        seed(timed, now_ms, plan, 700)  # what the ledger has since the first of either month
        assert use(timed, now_ms, plan, Cost(0, 0, 301)).status is Status.REFUSED
    assert use(timed, MONTH_END_MS, plan, Cost(0, 0, 300)).status is Status.ADMITTED


@pytest.mark.parametrize("days", [1, 40, 4_000])
def test_a_jump_ahead_and_back_begins_no_day_anew(limiter: TimedStore | StandIn, days: int) -> None:
    """NTP, for a moment in another year. However often: two days are visited, and each has its limit once."""
    plan, noon_ms = fresh(Limits(tokens_per_day=1_000)), 20_000 * DAY_MS + DAY_MS // 2
    admitted: Counter[int] = Counter()
    for turn in range(20):
        now_ms = noon_ms + days * DAY_MS * (turn % 2)
        for _ in range(4):
            decided = use(limiter, now_ms, plan, Cost(0, 100))
            admitted[now_ms // DAY_MS] += decided.status is Status.ADMITTED
            assert decided.wait_ms <= DAY_MS // 2, "never longer than until midnight"
    assert set(admitted.values()) == {10}
    assert use(limiter, noon_ms + DAY_MS // 2, plan, Cost(0, 100)).status is (
        Status.REFUSED if days == 1 else Status.ADMITTED
    ), "what was used of tomorrow is gone tomorrow"


def test_a_day_is_known_again_after_as_many_others_as_are_kept(limiter: TimedStore | StandIn) -> None:
    plan, noon_ms = fresh(Limits(tokens_per_day=1_000)), 20_000 * DAY_MS + DAY_MS // 2
    for day in range(DAYS_KEPT + 1):
        assert use(limiter, noon_ms + day * DAY_MS, plan, Cost(0, 900)).status is Status.ADMITTED
    assert use(limiter, noon_ms, plan, Cost(0, 200)).status is Status.REFUSED


def test_what_ran_while_the_clock_was_set_is_charged_to_the_day_of_its_reserve(
    limiter: TimedStore | StandIn,
) -> None:
    plan, noon_ms = fresh(Limits(tokens_per_day=1_000)), 20_000 * DAY_MS + DAY_MS // 2
    for name, now_ms in (("today", noon_ms), ("tomorrow", noon_ms + DAY_MS)):
        assert limiter.reserve(now_ms, plan, "e", name, Cost(0, 400)).status is Status.ADMITTED
    limiter.settle(noon_ms + DAY_MS, plan, "today", 1, Cost(0, 300))
    limiter.settle(noon_ms, plan, "tomorrow", 1, Cost(0, 200))
    assert limiter.look(noon_ms, plan, "e")[5] == 700
    assert limiter.look(noon_ms + DAY_MS, plan, "e")[5] == 800


def test_money_reserved_by_a_clock_that_was_ahead_is_charged_to_the_month_it_came_back_to(timed: TimedStore) -> None:
    plan = fresh(Limits(money_micro_per_month=1_000))
    seed(timed, MONTH_END_MS, plan, 0)
    assert timed.reserve(MONTH_END_MS, plan, "e", "a", Cost(0, 0, 600)).status is Status.ADMITTED
    seed(timed, MONTH_END_MS - 1, plan, 100)
    timed.settle(MONTH_END_MS - 1, plan, "a", 1, Cost(0, 0, 600))
    assert timed.look(MONTH_END_MS - 1, plan, "e")[6] == 300


def test_each_step_ahead_gives_back_a_minutes_limit_at_most(limiter: TimedStore | StandIn) -> None:
    plan, now_ms = fresh(Limits(tokens_per_minute=1_000)), 20_000 * DAY_MS
    for step_ms in (0, 31 * DAY_MS, -31 * DAY_MS, -DAY_MS):
        now_ms += step_ms
        used = sum(use(limiter, now_ms, plan, Cost(0, 100)).status is Status.ADMITTED for _ in range(30))
        assert used == (10 if step_ms >= 0 else 0), "a step back gives back nothing, and the wait is that of a bucket"
        assert use(limiter, now_ms, plan, Cost(0, 100)).wait_ms == 100 * MINUTE_MS // 1_000


def test_a_bucket_emptied_by_a_clock_ahead_refills_while_it_refuses(limiter: TimedStore | StandIn) -> None:
    plan, now_ms = fresh(Limits(requests_per_minute=1)), 20_000 * DAY_MS
    assert use(limiter, now_ms + HOUR_MS, plan, Cost()).status is Status.ADMITTED
    assert use(limiter, now_ms, plan, Cost()).status is Status.REFUSED
    assert use(limiter, now_ms + MINUTE_MS, plan, Cost()).status is Status.ADMITTED


def test_a_share_reported_last_month_is_reported_again_this_month(timed: TimedStore) -> None:
    plan, last_month = fresh(Limits(money_micro_per_month=1_000)), _month(MONTH_END_MS - 1)
    for name, now_ms in (("a", MONTH_END_MS - 1), ("b", MONTH_END_MS)):
        seed(timed, now_ms, plan, 0)
        timed.told(now_ms, plan.rules[0].key, 80, last_month, 1_000)  # once too early, once too late
        assert timed.reserve(now_ms, plan, "e", name, Cost(0, 0, 900)).status is Status.ADMITTED
        assert timed.settle(now_ms, plan, name, 1, Cost(0, 0, 900)) == [(1, 80, 900, 1_000, 0)]
        timed.told(now_ms, plan.rules[0].key, 80, last_month, 1_000)


@pytest.mark.parametrize("back_ms", [LONGEST_LEASE_MS, HOUR_MS, 40 * DAY_MS])
def test_a_dead_gateway_holds_its_places_no_longer_because_the_clock_was_set_back(
    limiter: TimedStore | StandIn, back_ms: int
) -> None:
    plan, now_ms = fresh(Limits(max_concurrency=1)), 20_000 * DAY_MS
    assert limiter.reserve(now_ms, plan, "dead", "a", Cost()).status is Status.ADMITTED
    assert limiter.reserve(now_ms, plan, "e", "b", Cost()).status is Status.REFUSED
    assert limiter.reserve(now_ms - back_ms, plan, "e", "b", Cost()).status is Status.ADMITTED


async def test_a_month_that_the_ledgers_clock_does_not_know_is_not_counted(fleet: Platform) -> None:
    """Valkey's clock a month ahead: a ledger without rows would begin every budget anew."""
    gateway, levels = await fleet.gateway(), fleet.budget(1_000)
    fleet.ledger.clock_behind_ms = 31 * DAY_MS
    with pytest.raises(BudgetUnavailable):
        await fleet.reserve(gateway, levels, 100)
    await gateway.reserve(uuid.uuid4().hex, fleet.caller, Tier.CHAT, levels, Cost())  # what is free needs no count
    fleet.ledger.clock_behind_ms = -31 * DAY_MS  # Valkey's clock behind: more is summed up, never less
    reservation = await fleet.reserve(gateway, levels, 100)
    await fleet.finish("a", reservation, 100)
    assert await fleet.left_micro(gateway, levels) == 900


async def test_a_month_that_begins_a_moment_later_by_the_ledgers_clock_is_waited_for(fleet: Platform) -> None:
    gateway, levels = await fleet.gateway(), fleet.budget(1_000)
    now_ms = await fleet.ledger.now_ms()
    fleet.ledger.clock_behind_ms = now_ms - _first_ms(now_ms) + 300
    assert await fleet.reserve(gateway, levels, 100)


class Jumps(RuleBasedStateMachine):
    """Three gateways, their true time, and a Valkey whose clock is anywhere. What was really used is written down.

    Per day: a limit for each day that the clock showed. Per month: the budget, and what ran when the clock turned the
    page, for that was reserved by one month of Valkey's and is dated by another in the ledger.
    """

    client: redis.Redis
    DAY, BUDGET = 1_000, 1_000

    @initialize()
    def begin(self) -> None:
        self.client.flushdb()
        self.store = TimedStore(self.client)
        self.plan = one_rule(Limits(tokens_per_day=self.DAY, money_micro_per_month=self.BUDGET), level=Level.KEY)
        self.key = self.plan.rules[0].key
        self.true_ms = MONTH_END_MS - 3 * DAY_MS
        self.offset_ms = 0
        self.number = 0
        self.open: dict[str, tuple[str, int, Cost]] = {}
        """Id to gateway's run, true time and cost."""
        self.runs = {"a": 0, "b": 0, "c": 0}
        self.ledger: dict[str, tuple[int, int]] = {}
        """Id to true time and amount."""
        self.by_page: Counter[int] = Counter()
        """Tokens used by the day that the clock showed when they were reserved."""
        self.pages_of: dict[str, int] = {}
        self.visited: list[int] = [self.now_ms // DAY_MS]
        self.begun: Counter[int] = Counter({self.visited[0]: 1})
        """How often a day could begin anew: the first time, and after more others than are kept."""
        self.ran_at_turns = 0
        self.beat()

    @property
    def now_ms(self) -> int:
        return self.true_ms + self.offset_ms

    def epoch(self, gateway: str) -> str:
        return f"{gateway}.{self.runs[gateway]}"

    def beat(self) -> None:
        for gateway in self.runs:
            self.store.beat(self.now_ms, self.plan, self.epoch(gateway))

    def moved(self, before_ms: int) -> None:
        """What follows when the clock shows another time: the heartbeats come, here at once."""
        today = self.now_ms // DAY_MS
        if today != self.visited[-1]:
            since = self.visited[::-1].index(today) if today in self.visited else len(self.visited)
            others = set(self.visited[len(self.visited) - since :])
            self.begun[today] += today not in self.visited or len(others) > DAYS_KEPT
            self.visited.append(today)
        if _month(before_ms) != _month(self.now_ms):
            self.ran_at_turns += sum(cost.micro for _, _, cost in self.open.values())
        self.beat()

    @rule(ms=st.sampled_from([1, HOUR_MS, DAY_MS]))
    def time_passes(self, ms: int) -> None:
        before_ms = self.now_ms
        self.true_ms += ms
        self.moved(before_ms)

    @rule(ms=st.sampled_from([0, 0, 20 * MINUTE_MS, -20 * MINUTE_MS, DAY_MS, -DAY_MS, -31 * DAY_MS, 365 * DAY_MS]))
    def the_clock_is_set(self, ms: int) -> None:
        before_ms = self.now_ms
        self.offset_ms = ms
        self.moved(before_ms)

    @rule(gateway=st.sampled_from("abc"), size=st.sampled_from([100, 500, 1_000]), paid=st.booleans())
    def reserve(self, gateway: str, size: int, paid: bool) -> None:
        self.number += 1
        name, cost = f"{self.number:06}", Cost(0, 0, size) if paid else Cost(0, size, 0)
        decided = self.store.reserve(self.now_ms, self.plan, self.epoch(gateway), name, cost)
        if decided.status is Status.UNSEEDED and self.count():
            decided = self.store.reserve(self.now_ms, self.plan, self.epoch(gateway), name, cost)
        first_ms = _first_ms(self.now_ms)
        if decided.status is Status.UNSEEDED:
            assert first_ms > self.true_ms, "only a month that has not begun is refused for that"
        elif decided.status is Status.REFUSED:
            assert 0 < decided.wait_ms <= 31 * DAY_MS
            running = [each for epoch, _, each in self.open.values()]
            if paid:
                spent = sum(amount for at, amount in self.ledger.values() if at >= first_ms)
                assert spent + sum(each.micro for each in running) + size > self.BUDGET, "refused with money left"
            else:
                used = self.by_page[self.now_ms // DAY_MS]
                assert used + sum(each.tokens for each in running) + size > self.DAY, "refused with tokens left"
        if decided.status is Status.ADMITTED:
            self.open[name] = (self.epoch(gateway), self.true_ms, cost)
            self.pages_of[name] = self.now_ms // DAY_MS

    def count(self) -> bool:
        """As Counting does it: all say what they have open, the ledger has everything that ended."""
        begun = self.store.run(self.store.script("x").upkeep("begin", [self.key], "t"), self.now_ms)
        _, since_ms, month = begun
        if since_ms > self.true_ms:
            return False
        living = {self.epoch(gateway) for gateway in self.runs}
        for name, (epoch, _, cost) in self.open.items():
            if epoch in living:
                assert self.store.announce(self.now_ms, self.plan, epoch, name, cost)
        without = self.store.ids(self.now_ms, self.key, "t")
        assert without is not None
        spent = sum(amount for name, (at, amount) in self.ledger.items() if at >= since_ms and name not in without)
        return self.store.seed(self.now_ms, self.key, "t", spent, len(without), month) == 1

    @precondition(lambda self: self.open)
    @rule(pick=st.integers(0, 99), part=st.sampled_from([0, 50, 100, 100, 100]))
    def settle(self, pick: int, part: int) -> None:
        living = {self.epoch(gateway) for gateway in self.runs}
        mine = [name for name, (epoch, _, _) in self.open.items() if epoch in living]
        if mine:
            name = mine[pick % len(mine)]
            used = self.end(name, part)
            assert self.store.settle(self.now_ms, self.plan, name, 1, used) is not None

    def end(self, name: str, part: int) -> Cost:
        _, at_ms, cost = self.open.pop(name)
        used = Cost(0, cost.output_tokens * part // 100, cost.micro * part // 100)
        self.ledger[name] = (at_ms, used.micro)
        self.by_page[self.pages_of[name]] += used.output_tokens
        return used

    @rule(gateway=st.sampled_from("abc"), part=st.sampled_from([0, 100]))
    def a_gateway_dies_and_its_next_run_reconciles(self, gateway: str, part: int) -> None:
        dead = self.epoch(gateway)
        self.runs[gateway] += 1
        for name in [name for name, (epoch, _, _) in self.open.items() if epoch == dead]:
            self.open[name] = (
                dead,
                self.open[name][1],
                Cost(0, 0, self.open[name][2].micro),
            )  # nobody counts its tokens
            self.end(name, part)
            assert self.store.retire(self.now_ms, self.plan, name)

    @invariant()
    def no_day_that_the_clock_showed_holds_more_than_its_limit(self) -> None:
        if hasattr(self, "ledger"):
            for page, used in self.by_page.items():
                assert used <= self.DAY * self.begun[page]

    @invariant()
    def no_true_month_costs_more_than_the_budget_and_what_ran_when_pages_were_turned(self) -> None:
        if hasattr(self, "ledger"):
            spent: Counter[int] = Counter()
            for at_ms, amount in self.ledger.values():
                spent[_month(at_ms)] += amount
            assert all(amount <= self.BUDGET + self.ran_at_turns for amount in spent.values())


def _first_ms(ms: int) -> int:
    moment = datetime.fromtimestamp(ms / 1_000, UTC)
    return int(datetime(moment.year, moment.month, 1, tzinfo=UTC).timestamp()) * 1_000


def _month(ms: int) -> int:
    moment = datetime.fromtimestamp(ms / 1_000, UTC)
    return moment.year * 12 + moment.month - 1


@pytest.mark.hypothesis
def test_no_limit_is_passed_under_any_clock(store: AnyStore) -> None:
    with store.client() as client:
        if client.connection_pool.connection_kwargs.get("path") is None:
            pytest.skip("flushes the database: only on a store of our own")
        run_machine(
            type("Machine", (Jumps,), {"client": client}),
            settings=examples(
                nightly=2_000,
                gate=20,
                stateful_step_count=40,
                phases=(Phase.explicit, Phase.reuse, Phase.generate),
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
