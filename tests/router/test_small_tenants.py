"""The tenant with the fewest tokens is next, on time or late, however many requests of others wait."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Model
from contracts.generation import Tier
from contracts.lease import LeaseRequest
from router.core.fair_queue import FairQueue
from router.core.reasons import Reason
from router.core.state import QueuedRequest, Session
from tests.examples import examples
from tests.router.closed_loop import Asker, ClosedLoop
from tests.router.core_driver import Core, granted, refused
from tests.router.fakes import fleet

MODEL, SESSION = Model("m", Tier.CHAT, "p", 8_192), Session("g", "e")


@pytest.mark.parametrize(("lanes", "tokens", "jitter"), [(4, 80, 0.3), (8, 40, 0.0), (60, 80, 0.3)])
def test_a_tenant_with_one_request_has_the_next_place_beside_any_number_of_others(
    lanes: int, tokens: int, jitter: float
) -> None:
    askers = {"many": Asker(lanes, tokens, 500), "one": Asker(1, 4, 4, pause_s=0.2, begins_s=5.0)}
    found = ClosedLoop(askers, 4, jitter=jitter).run(90.0)
    one = found["one"]
    assert not one.refused
    assert max(one.passed_over) == 0, "the next place that came free was its own"
    assert max(one.waits_s) < tokens * 0.05 * 1.1, "so that no wait is longer than one of the answers"
    assert len(found["many"].waits_s) > 0.8 * 4 * 90.0 / (tokens * 0.05), "and no place stood empty"


@pytest.mark.parametrize("places", [1, 4])
def test_several_small_tenants_are_next_before_the_one_that_keeps_the_places(places: int) -> None:
    small = {f"small-{number}": Asker(1, 8, 32, pause_s=0.3, begins_s=5.0) for number in range(max(places // 2, 1))}
    found = ClosedLoop({"many": Asker(60, 60, 500), **small}, places).run(60.0)
    for name in small:
        assert not found[name].refused
        assert max(found[name].passed_over) <= 2 * len(small), "by its like, and by what the step lets pass"


def test_a_burst_of_a_tenant_that_holds_nothing_gets_its_part_of_the_places() -> None:
    found = ClosedLoop({"many": Asker(40, 80, 500), "burst": Asker(20, 80, 500, begins_s=5.0)}, 4).run(90.0)
    grants = {name: len(each.waits_s) for name, each in found.items()}
    assert grants["burst"] > 0.8 * grants["many"] * 85 / 90, "two of the four"


def test_a_small_project_is_next_before_a_large_one_of_its_organization() -> None:
    askers = {
        "many": Asker(40, 80, 500, organization_id="acme"),
        "one": Asker(1, 4, 4, pause_s=0.2, begins_s=5.0, organization_id="acme"),
    }
    one = ClosedLoop(askers, 4).run(60.0)["one"]
    assert max(one.passed_over) == 0


@pytest.mark.parametrize(("tenants", "pause_s"), [(60, 0.0), (10, 0.0), (30, 5.0)])
def test_where_many_ask_alike_for_more_than_there_is_promises_are_kept_all_the_same(
    tenants: int, pause_s: float
) -> None:
    askers = {f"tenant-{number}": Asker(1, 40, 100, pause_s, 0.13 * number) for number in range(tenants)}
    found = ClosedLoop(askers, 4).run(150.0)
    grants = [len(each.waits_s) for each in found.values()]
    waits_s = [wait_s for each in found.values() for wait_s in each.waits_s]
    assert sum(wait_s < 0.7 for wait_s in waits_s) > 0.25 * len(waits_s), "turns alone would keep one in a hundred"
    assert max(grants) - min(grants) <= 3, "and nobody is given more than another"


def test_a_tenant_whose_asks_fit_nowhere_does_not_hide_those_of_others() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=64))
    core.polled("r1", capacity_tokens=10_000)
    core.placed("running", organization_id="other", prompt_tokens=4_000, max_output_tokens=10)
    for number in range(40):
        assert not core.ask(f"large-{number}", organization_id="large", prompt_tokens=7_000)
    assert granted(core.ask("small", organization_id="other")) == ["small"]
    core.now += 5.0
    assert not core.ask("middle", organization_id="third", prompt_tokens=5_900)
    (pool,) = core.core.fleet.pools.values()
    assert [one.why for one in pool.queue if one.ask.lease_id == "middle"] == [Reason.MEMORY], "it was tried"


def test_a_full_queue_takes_in_who_has_least_waiting() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), queue_length=10)
    core.placed("one-0", organization_id="one", prompt_tokens=500)
    for number in range(10):
        core.ask(f"many-{number}", organization_id="many")
    core.over("one-0", 500)
    core.ask("many-10", organization_id="many")
    # it was given more so far, but has nothing in line
    (outranked,) = refused(core.ask("one-1", organization_id="one"))
    assert outranked.lease_id.startswith("many")
    (full,) = refused(core.ask("many-11", organization_id="many"))
    assert full.lease_id == "many-11", "who fills the queue takes nobody's place in it"


ASKS = st.lists(
    st.tuples(
        st.sampled_from("abcd"), st.sampled_from("pq"), st.integers(-1, 1), st.sampled_from([10, 20]), st.integers(0, 9)
    ),
    max_size=30,
)


@examples(nightly=300)
@given(ASKS, st.randoms(use_true_random=False))
def test_the_order_is_that_of_the_plain_rule(asks: list[tuple[str, str, int, int, int]], dice: random.Random) -> None:
    queue, numbers = FairQueue(), itertools.count()
    members: list[QueuedRequest] = []
    for name, project, priority, length_class, start_by in asks:
        number = next(numbers)
        ask = LeaseRequest(
            f"l{number}", f"r{number}", 0, Tier.CHAT, "m", 10, 10, 60.0, name, project_id=project, priority=priority
        )
        one = QueuedRequest(SESSION, ask, MODEL, 0.0)
        one.length_class, one.start_by = length_class, float(start_by)
        queue.asked(name, 1.0, 0.0, length_class)
        queue.add(one)
        members.append(one)
        if dice.random() < 0.3:
            left = members.pop(dice.randrange(len(members)))
            queue.remove(left)
            tenant = queue.tenant(_account(left))
            worth = queue.charge(tenant, left.length_class, dice.randrange(500), 9, 0.0, left.ask.project_id)
            queue.holds(tenant.name, 1, 20, 9, left.ask.project_id)
            queue.served(tenant, left.ask.project_id, worth)

    width = queue._step_tokens

    def plainly(one: QueuedRequest) -> tuple[object, ...]:
        tenant = queue.tenants[_account(one)]
        project, late = tenant.projects[one.ask.project_id], one.start_by < 5.0
        length = queue._length_classes[one.length_class].counter
        return (
            -one.ask.priority, tenant.counter // width, project.counter // width, late, tenant.counter, tenant.name,
            project.counter, project.name, length, one.length_class, one.start_by, one.number,
        )  # fmt: skip

    assert list(queue.in_order(5.0)) == sorted(members, key=plainly)


def _account(one: QueuedRequest) -> str:
    return ("yielding:" if one.ask.priority < 0 else "") + one.ask.organization_id


@examples(nightly=300)
@given(
    st.dictionaries(
        st.sampled_from("abcde"), st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([0.5, 1.0, 2.0]))
    )
)
def test_who_is_entitled_to_a_place_is_as_the_plain_rule_says(tenants: dict[str, tuple[int, int, float]]) -> None:
    queue, numbers = FairQueue(), itertools.count()
    for name, (leases, asks, share) in tenants.items():
        queue.asked(name, share, 0.0)
        for _ in range(leases):
            queue.holds(name, 1, 20)
        for _ in range(asks):
            number = next(numbers)
            ask = LeaseRequest(f"l{number}", f"r{number}", 0, Tier.CHAT, "m", 10, 10, 60.0, name, share=share)
            queue.add(QueuedRequest(SESSION, ask, MODEL, 0.0))
    running = sum(leases for leases, _, _ in tenants.values())
    demand = running + sum(asks for _, asks, _ in tenants.values())
    plain: dict[str, int] = {}
    for name, (leases, asks, share) in tenants.items():
        others = [each for other, each in tenants.items() if other != name and each[0] + each[1]]
        more = 0
        while any((theirs - 1) / of >= (leases + more + 1) / share for theirs, _, of in others):
            more += 1  # a lease of theirs would be fairer with it
        for away in others:
            if demand - away[0] - away[1] <= running:
                more = asks
        if asks and more > 0:
            plain[name] = more
    assert queue.entitled() == plain
