"""Who is given up when not all can be in time."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Model
from contracts.generation import Tier
from contracts.lease import LeaseRequest
from router.core.fair_queue import FairQueue
from router.core.load_shedding import EFFICIENCY, MIN_WORK_S, SHARE_WEIGHT, Served, begin_by, given_up
from router.core.state import QueuedRequest, Session
from tests.examples import examples

MODEL = Model("m", Tier.CHAT, "p", 8_192)
SESSION = Session("g", "e")


def waiting(
    number: int, work_s: float, start_by: float, tenant: str = "a", length: int = 1, share: float = 1.0, at: float = 0.0
) -> QueuedRequest:
    ask = LeaseRequest(f"l{number}", f"r{number}", 0, Tier.CHAT, "m", 10, 10, 60.0, tenant, share=share)
    made = QueuedRequest(SESSION, ask, MODEL, at)
    made.number, made.work_s, made.start_by, made.length = number, work_s, start_by, length
    return made


def names(asks: list[QueuedRequest]) -> set[int]:
    return {one.number for one in asks}


@examples(nightly=200)
@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.floats(0.1, 10.0)), max_size=20), st.floats(0, 2), st.floats(0.5, 8))
def test_who_is_left_can_begin_in_time(asks: list[tuple[float, float]], backlog_s: float, rate: float) -> None:
    line = [waiting(number, *each) for number, each in enumerate(asks)]
    gone = given_up(line, backlog_s, rate, Served(), 0.0)
    assert len(names(gone)) == len(gone)
    before_s = backlog_s
    for one in sorted((one for one in line if one not in gone), key=lambda one: (begin_by(one), one.number)):
        assert before_s / (rate * EFFICIENCY) <= max(begin_by(one), 0.0001) + 1e-9
        before_s += one.work_s


def test_one_large_prompt_goes_instead_of_many_small_ones_that_came_later() -> None:
    line = [waiting(0, 5.0, 1.0), *(waiting(number, 0.2, 1.0 + 0.25 * number) for number in range(1, 6))]
    assert names(given_up(line, 0.0, 1.0, Served(), 0.0)) == {0}
    assert not given_up(line, 0.0, 8.0, Served(), 0.0), "on more engines there is room for all"


def test_a_length_of_which_hardly_any_were_served_is_spared() -> None:
    served = Served()
    for _ in range(200):
        served.count(65_536, False)
        served.count(4_096, True)
    line = [waiting(0, 5.0, 1.0, length=65_536)]
    line += [waiting(number, 0.2, 1.0 + 0.25 * number, length=4_096) for number in range(1, 6)]
    assert names(given_up(line, 0.0, 1.0, served, 0.0)) == {1, 2, 3, 4, 5}
    for _ in range(20):
        served.count(65_536, True)
    assert names(given_up(line, 0.0, 1.0, served, 0.0)) == {0}


def test_a_tenant_that_fills_the_queue_gives_up_its_own_first() -> None:
    line = [waiting(number, 0.5, 2.0, "flood") for number in range(8)]
    line += [waiting(20 + number, 1.0, 2.0, tenant) for number, tenant in enumerate("bcd")]
    gone = given_up(line, 0.0, 2.0, Served(), 0.0)
    assert gone
    assert {one.ask.organization_id for one in gone} == {"flood"}


def test_who_is_late_already_is_left_alone() -> None:
    assert not given_up([waiting(0, 5.0, 1.0)], 10.0, 1.0, Served(), 2.0)


def test_a_tenant_that_holds_more_than_its_share_gives_up_first_even_if_little_of_it_waits() -> None:
    line = [waiting(1, 1.2, 1.0, "one"), waiting(2, 0.5, 1.0, "flood"), waiting(3, 1.1, 1.0, "other")]
    assert names(given_up(line, 0.0, 1.8, Served(), 0.0)) == {1}
    assert names(given_up(line, 0.0, 1.8, Served(), 0.0, {"flood"})) == {2}


def plainly_given_up(
    asks: list[QueuedRequest], backlog_s: float, rate: float, parts: dict[str, float]
) -> list[QueuedRequest]:
    """The rule without heaps, of tenants that ask for alike much: as long as one is late, the dearest of those up to it
    goes."""

    def price(one: QueuedRequest) -> float:
        part = parts.get(one.ask.organization_id, 1.0)
        return math.log(max(one.work_s, MIN_WORK_S)) + SHARE_WEIGHT * max(part - 1.0, 0.0)

    left = sorted(asks, key=lambda one: (begin_by(one), one.number))
    gone: list[QueuedRequest] = []

    def first_late() -> int | None:
        before_s = backlog_s
        for place, one in enumerate(left):
            if before_s / (rate * EFFICIENCY) > max(begin_by(one), one.asked_at + 0.0001):
                return place
            before_s += one.work_s
        return None

    while (place := first_late()) is not None:
        gone.append(max(left[: place + 1], key=lambda one: (price(one), -one.number)))
        left.remove(gone[-1])
    return gone


@examples(nightly=200)
@given(
    st.lists(st.tuples(st.floats(0.01, 3.0), st.floats(0.1, 10.0)), max_size=16),
    st.floats(0, 2),
    st.floats(0.5, 8),
    st.dictionaries(st.sampled_from("ab"), st.floats(0.0, 4.0)),
)
def test_the_dearest_work_goes_as_in_the_plain_rule(
    asks: list[tuple[float, float]], backlog_s: float, rate: float, parts: dict[str, float]
) -> None:
    # each beside one of the other tenant of the same work: nobody has more than its part of the queue
    line = [
        waiting(2 * number + nth, *each, tenant=tenant)
        for number, each in enumerate(asks)
        for nth, tenant in enumerate("ab")
    ]
    gone = given_up(line, backlog_s, rate, Served(), 0.0, parts=parts)
    assert names(gone) == names(plainly_given_up(line, backlog_s, rate, parts))


def test_who_was_given_more_than_its_share_gives_up_before_twenty_times_its_work() -> None:
    line = [waiting(1, 1.0, 1.0, "large"), waiting(2, 0.1, 1.0, "small"), waiting(3, 1.0, 1.0, "other")]
    assert names(given_up(line, 0.0, 1.2, Served(), 0.0)) == {1}
    assert names(given_up(line, 0.0, 1.2, Served(), 0.0, parts={"small": 1.1})) == {2}
    assert names(given_up(line, 0.0, 1.2, Served(), 0.0, parts={"small": 0.9, "other": 0.2})) == {1}, "within its share"


def test_where_no_length_is_served_well_the_worst_served_alone_is_spared() -> None:
    served = Served()
    for number in range(500):
        served.count(4_096, number % 10 == 0)
        served.count(16_384, number % 12 == 0)
        served.count(65_536, False)
    assert [served.spares(length) for length in (4_096, 16_384, 65_536)] == [False, False, True]


@pytest.mark.parametrize(("seed", "share", "long"), [(0, 3.0, False), (1, 3.0, True), (2, 1.5, False)])
def test_in_a_lasting_overload_tokens_follow_the_shares(seed: int, share: float, long: bool) -> None:
    """Two tenants ask for twice what a machine can do each, the one with the larger share perhaps in prompts ten times
    as long, which are given up first where shares say nothing."""
    dice, queue, served = random.Random(seed), FairQueue(), Served()
    shares = {"large": share, "small": 1.0}
    tokens = dict.fromkeys(shares, 0.0)
    number, backlog_s = 0, 0.0
    for second in range(1_200):
        now = float(second)
        line: list[QueuedRequest] = []
        for name, each in shares.items():
            queue.asked(name, each, now)
            work_s = 0.0
            while work_s < 2.0:
                number += 1
                one_s = dice.uniform(0.05, 0.15) * (10 if long and name == "large" else 1)
                line.append(waiting(number, one_s, now + dice.uniform(0.5, 1.5), name, share=each, at=now))
                queue.add(line[-1])
                work_s += one_s
        gone = given_up(line, backlog_s, 1.0, served, now, queue.over_share_names(), queue.parts(now))
        backlog_s = max(0.0, backlog_s - 1.0)
        for one in line:
            queue.remove(one)
            if one not in gone:
                name = one.ask.organization_id
                queue.charge(queue.tenant(name), 0, 1_000 * one.work_s, 0, now)
                backlog_s += one.work_s
                if second >= 200:
                    tokens[name] += one.work_s
    assert tokens["large"] / tokens["small"] == pytest.approx(share, rel=0.1)
    assert sum(tokens.values()) > 0.6 * 1_000, "the machine is used"
