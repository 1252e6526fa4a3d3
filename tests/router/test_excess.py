"""Whose doing a refusal is: the router's running sums against a plain reference, and a core that is really full."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Model
from contracts.errors import Overloaded
from contracts.generation import Tier
from contracts.lease import LeaseRequest
from contracts.proto import router_pb2 as pb
from router.client import _error_of
from router.core.decisions import Refused
from router.core.events import ReplicaPolled, Tick
from router.core.excess import in_excess
from router.core.fair_queue import ACTIVE_S, FairQueue
from router.core.state import QueuedRequest, Session
from router.protocol import messages
from tests.examples import examples
from tests.router.core_driver import Core, granted, refused
from tests.router.fakes import fleet

MODEL, SESSION = Model("m", Tier.CHAT, "p", 8_192), Session("g", "e")
NAMES = "abcd"
EVENTS = st.one_of(
    st.tuples(st.just("asks"), st.sampled_from(NAMES), st.integers(1, 4_000)),
    st.tuples(st.sampled_from(["runs", "leaves", "ends"]), st.integers(0, 40), st.just(0)),
    st.tuples(st.just("passes"), st.sampled_from([1.0, 6.0, 11.0]), st.just(0)),
)


class Plain:
    """All that waits and runs, one by one, and who asked when."""

    def __init__(self, shares: dict[str, float]) -> None:
        self.shares = {name: Fraction(share) for name, share in shares.items()}
        self.waiting: list[QueuedRequest] = []
        self.running: list[tuple[str, int]] = []
        self.asked: dict[str, float] = {}
        self.last = 0.0
        """When anybody asked."""

    def demand(self, name: str) -> int:
        waits = sum(one.ask.tokens for one in self.waiting if one.ask.organization_id == name)
        return waits + sum(tokens for whose, tokens in self.running if whose == name)

    def in_excess(self, name: str) -> bool:
        """By the definition: demands for shares, then whether everybody else fits into what runs."""
        active = {other for other, at in self.asked.items() if at >= self.last - ACTIVE_S} | {name}
        running, everyone = sum(tokens for _, tokens in self.running), sum(map(self.demand, NAMES))
        if len(active) == 1 or not running:
            return False
        excessive = set()
        for one in active:
            own = self.demand(one) / self.shares[one]
            of_others = Fraction(everyone - self.demand(one)) / sum(self.shares[each] for each in active - {one})
            if own > Fraction(3, 2) * of_others:
                excessive.add(one)
        others_demand = everyone - sum(map(self.demand, excessive))
        return name in excessive and others_demand <= running


@examples(nightly=150)
@given(
    st.lists(EVENTS, max_size=60),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=len(NAMES), max_size=len(NAMES)),
)
def test_the_verdict_equals_the_plain_one(events: list[tuple[str, object, int]], of: list[float]) -> None:
    shares = dict(zip(NAMES, of, strict=True))
    queue, plain, now = FairQueue(), Plain(shares), 100.0
    for number, (kind, which, tokens) in enumerate(events):
        if kind == "asks":
            name = str(which)
            queue.asked(name, shares[name], now)
            plain.asked[name] = plain.last = now
            ask = LeaseRequest(
                f"l{number}", f"r{number}", 0, Tier.CHAT, "m", tokens, 10, 60.0, organization_id=name,
                share=shares[name],
            )  # fmt: skip
            one = QueuedRequest(SESSION, ask, MODEL, now)
            queue.add(one)
            plain.waiting.append(one)
        elif kind == "passes":
            now += float(str(which))
        elif kind == "ends" and plain.running:
            name, held = plain.running.pop(int(str(which)) % len(plain.running))
            queue.holds(name, -1, -held)
        elif kind in ("runs", "leaves") and plain.waiting:
            one = plain.waiting.pop(int(str(which)) % len(plain.waiting))
            queue.remove(one)
            if kind == "runs":
                queue.holds(one.ask.organization_id, 1, one.ask.tokens)
                plain.running.append((one.ask.organization_id, one.ask.tokens))
        for name in plain.asked:
            assert in_excess(queue, name) == plain.in_excess(name), (kind, which, tokens)


@examples(nightly=50)
@given(st.integers(2, 12), st.integers(1, 40), st.integers(1, 3))
def test_where_all_demand_alike_nobody_is_in_excess(tenants: int, waiting: int, running: int) -> None:
    queue = FairQueue()
    for tenant in range(tenants):
        queue.asked(str(tenant), 1.0, 0.0)
        queue.holds(str(tenant), running, 100 * running)
        for number in range(waiting):
            ask = LeaseRequest(f"{tenant}-{number}", "r", 0, Tier.CHAT, "m", 90, 10, 60.0, organization_id=str(tenant))
            queue.add(QueuedRequest(SESSION, ask, MODEL, 0.0))
    assert not any(in_excess(queue, str(tenant)) for tenant in range(tenants))


def test_two_that_flood_a_pool_are_both_in_excess_and_not_the_others() -> None:
    queue = FairQueue()
    for name, held in (("one", 400), ("two", 400), *((f"quiet-{number}", 25) for number in range(8))):
        queue.asked(name, 1.0, 0.0)
        queue.holds(name, 1, held)
    for number in range(20):
        ask = LeaseRequest(
            f"l{number}", "r", 0, Tier.CHAT, "m", 90, 10, 60.0, organization_id=("one", "two")[number % 2]
        )
        queue.add(QueuedRequest(SESSION, ask, MODEL, 0.0))
    assert [name for name in queue.tenants if in_excess(queue, name)] == ["one", "two"]


def told(decisions: list[Refused]) -> dict[str, bool]:
    return {one.lease_id.split("-")[0]: one.over_share for one in decisions}


def test_a_full_core_tells_the_noisy_from_those_it_has_no_room_for() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=4), queue_length=6)
    core.ask("quiet-0", organization_id="quiet", deadline_s=5.0)
    found: list[Refused] = []
    for number in range(12):
        found += refused(core.ask(f"noisy-{number}", organization_id="noisy", deadline_s=5.0))
    assert found
    assert {one.code for one in found} == {Overloaded.code}
    assert all(one.over_share for one in found)
    assert all("more than its share" in one.reason for one in found)
    late = refused(core.ask("quiet-1", organization_id="quiet", deadline_s=0.0))
    assert told(late) == {"quiet": False}, "who is within its share was failed"
    assert core.core.placer.sheds.over_share == {"chat": len(found)}
    core.now += 6.0
    gone = refused(core.ask("quiet-2", organization_id="quiet", deadline_s=5.0))
    assert told(gone)["noisy"], "not placed in time is its own doing as well"


def test_a_core_too_small_for_everybody_blames_nobody() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=4), queue_length=8)
    found: list[Refused] = []
    for number in range(40):
        found += refused(core.ask(f"{'abcd'[number % 4]}-{number}", organization_id="abcd"[number % 4], deadline_s=5.0))
    assert len(found) == 28
    assert not any(one.over_share for one in found)
    alone = Core(fleet(replicas=("r1",), max_concurrency=1), queue_length=1)
    found = [each for number in range(9) for each in refused(alone.ask(f"a-{number}", organization_id="a"))]
    assert len(found) == 7
    assert not any(one.over_share for one in found), "who is alone has all of the pool"


def test_a_pool_that_has_lost_a_replica_blames_nobody() -> None:
    """Else an outage would pass for the excess of whoever uses most of the pool."""
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=4), queue_length=6)
    core.ask("quiet-0", organization_id="quiet", deadline_s=5.0)
    while core.core.fleet.replicas["r2"].usable:
        core.do(ReplicaPolled("r2", False))
    found = [
        each
        for number in range(16)
        for each in refused(core.ask(f"noisy-{number}", organization_id="noisy", deadline_s=5.0))
    ]
    assert found
    assert not any(one.over_share for one in found)


def refusals_of(rates: dict[str, float], seed: int, for_s: float) -> tuple[Counter[str], Counter[str]]:
    """Poisson arrivals (a second, by organization) at one engine of eight places, a second each: all refusals, and
    those said to be over the share."""
    dice, numbers = random.Random(seed), itertools.count()
    core = Core(fleet(replicas=("r1",), max_concurrency=8), queue_length=20)
    steps: list[tuple[float, int, str, str]] = []
    for name, rate in rates.items():
        at = core.now
        while (at := at + dice.expovariate(rate)) < 100.0 + for_s:
            steps.append((at, next(numbers), "asks", name))
    heapq.heapify(steps)
    all_of_them: Counter[str] = Counter()
    over: Counter[str] = Counter()
    while steps:
        at, number, kind, which = heapq.heappop(steps)
        wakes_at = core.core.next_wakeup()
        if wakes_at is not None and wakes_at < at:
            heapq.heappush(steps, (at, number, kind, which))
            at, kind = max(wakes_at, core.now), "wakes"
        core.now = at
        if kind == "asks":
            size = {"prompt_tokens": dice.randint(50, 500), "max_output_tokens": dice.randint(20, 400)}
            found = core.ask(f"{which}-{number}", organization_id=which, deadline_s=3.0, **size)
        else:
            found = core.over(which) if kind == "ends" else core.do(Tick())
        for lease_id in granted(found):
            heapq.heappush(steps, (core.now + dice.expovariate(1.0), next(numbers), "ends", lease_id))
        for one in refused(found):
            name = one.lease_id.split("-")[0]
            all_of_them[name] += 1
            over[name] += one.over_share
    return all_of_them, over


@pytest.mark.parametrize("seed", range(2))
def test_a_flood_is_told_from_an_overload_by_chance_arrivals(seed: int) -> None:
    shed, over = refusals_of({"noisy": 40.0, "one": 1.5, "other": 1.5}, seed, for_s=15.0)
    assert shed["noisy"] > 300
    assert over["noisy"] > 0.9 * shed["noisy"]
    assert over["one"] == over["other"] == 0
    shed, over = refusals_of(dict.fromkeys("abcd", 4.0), seed, for_s=30.0)
    assert shed.total() > 150
    assert over.total() < 0.05 * shed.total(), "twice what the pool can do, of all alike: it is too small"


def test_the_wire_tells_it_and_an_older_router_says_no() -> None:
    sent = messages.shed("l1", Overloaded.code, "full", 1.0, over_share=True).shed
    error = _error_of(pb.Shed.FromString(sent.SerializeToString()))
    assert isinstance(error, Overloaded)
    assert error.over_share
    older = _error_of(pb.Shed(lease_id="l1", code=Overloaded.code, reason="full", retry_after_ms=1))
    assert isinstance(older, Overloaded)
    assert not older.over_share
