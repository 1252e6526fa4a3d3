"""Who is given up when not all can be in time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.desired_state import Model
from contracts.generation import Tier
from contracts.lease import LeaseRequest
from router.core.load_shedding import EFFICIENCY, Served, begin_by, given_up
from router.core.state import QueuedRequest, Session

MODEL = Model("m", Tier.CHAT, "p", 8_192)
SESSION = Session("g", "e")


def waiting(number: int, work_s: float, start_by: float, tenant: str = "a", length: int = 1) -> QueuedRequest:
    made = QueuedRequest(
        SESSION, LeaseRequest(f"l{number}", f"r{number}", 0, Tier.CHAT, "m", 10, 10, 60.0, tenant), MODEL, 0.0
    )
    made.number, made.work_s, made.start_by, made.length = number, work_s, start_by, length
    return made


def names(asks: list[QueuedRequest]) -> set[int]:
    return {one.number for one in asks}


@settings(max_examples=200, deadline=None)
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
