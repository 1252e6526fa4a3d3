"""The fair queue: nobody is lost, shares are kept within their bound, and the order is what it says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import Model
from contracts.generation import Tier
from contracts.lease import LeaseRequest
from router.core.fair_queue import IDLE_LIMIT, OUTPUT_WEIGHT, YIELDING, FairQueue
from router.core.state import QueuedRequest, Session
from tests.examples import examples

MODEL = Model("m", Tier.CHAT, "p", 8_192)
SESSION = Session("g", "e")


def waiting(
    number: int, tenant: str, *, priority: int = 0, length_class: int = 0, start_by: float = 0.0
) -> QueuedRequest:
    ask = LeaseRequest(
        f"l{number}", f"r{number}", 0, Tier.CHAT, "m", 10, 10, 60.0, organization_id=tenant, priority=priority
    )
    made = QueuedRequest(SESSION, ask, MODEL, 0.0)
    made.length_class, made.start_by = length_class, start_by
    return made


def test_a_new_tenant_is_kept_when_idle_ones_are_forgotten() -> None:
    queue = FairQueue()
    for number in range(IDLE_LIMIT):
        queue.tenant(f"t{number}")
    new = queue.tenant("new")
    assert queue.tenants["new"] is new
    assert len(queue.tenants) <= IDLE_LIMIT // 2 + 1


def test_a_request_under_a_new_desired_state_keeps_its_claimed_reservation() -> None:
    returned = waiting(1, "a")
    returned.returned = True
    assert returned.again(MODEL).returned


@examples(nightly=100)
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-1, 1), st.sampled_from([10, 20]), st.integers(0, 9)), max_size=30
    ),
    st.randoms(use_true_random=False),
)
def test_everyone_has_one_turn_and_higher_classes_come_first(
    asks: list[tuple[str, int, int, int]], dice: random.Random
) -> None:
    queue = FairQueue()
    members = [
        waiting(number, tenant, priority=priority, length_class=length_class, start_by=float(start_by))
        for number, (tenant, priority, length_class, start_by) in enumerate(asks)
    ]
    for one in members:
        queue.add(one)
    gone = [one for one in members if dice.random() < 0.3]
    for one in gone:
        queue.remove(one)
    left = [one for one in members if one not in gone]
    order = list(queue.in_order(5.0))
    assert sorted(one.number for one in order) == sorted(one.number for one in left)
    assert [one.ask.priority for one in order] == sorted((one.ask.priority for one in left), reverse=True)
    for priority in (-1, 0, 1):  # nobody was given anything yet
        late = [one.start_by < 5.0 for one in order if one.ask.priority == priority]
        assert late == sorted(late), "who can be in time goes before who cannot"
    last = queue.last()
    assert (last is None) == (not left)
    if last is not None:
        assert last.ask.priority == min(one.ask.priority for one in left)
    for one in left:
        queue.remove(one)
    assert (len(queue), queue._lines, [tenant.waiting for tenant in queue.tenants.values() if tenant.waiting]) == (
        0,
        {},
        [],
    )


@pytest.mark.parametrize("seed", range(3))
def test_tenants_that_always_wait_get_tokens_by_their_shares_within_the_bound(seed: int) -> None:
    dice = random.Random(seed)
    queue = FairQueue()
    shares = {"one": 1.0, "double": 2.0, "also one": 1.0}
    largest = 0.0
    given_tokens = dict.fromkeys(shares, 0.0)
    numbers = iter(range(1_000_000))

    def ask_more(tenant: str) -> None:
        queue.asked(tenant, shares[tenant], 0.0)
        queue.add(waiting(next(numbers), tenant))

    for tenant in shares:
        ask_more(tenant)
        ask_more(tenant)
    for _ in range(2_000):
        one = next(queue.in_order(0.0))
        name = one.ask.organization_id
        # what is expected first, what was used a little later: both are charged
        prompt, expected, used = dice.randrange(10, 4_000), dice.randrange(1, 500), dice.randrange(1, 500)
        queue.remove(one)
        account = queue.tenant(name)
        queue.charge(account, 0, prompt, expected, 0.0)
        queue.served(account)
        queue.charge(account, 0, 0, used - expected, 0.0)
        cost = (prompt + OUTPUT_WEIGHT * max(used, expected)) / shares[name]
        largest = max(largest, cost)
        given_tokens[name] += (prompt + OUTPUT_WEIGHT * used) / shares[name]
        ask_more(name)
        assert max(given_tokens.values()) - min(given_tokens.values()) <= 2 * largest


def test_who_comes_back_neither_owes_nor_is_owed() -> None:
    queue = FairQueue()
    for name in ("steady", "back"):
        queue.asked(name, 1.0, 0.0)
    queue.charge(queue.tenant("steady"), 0, 1_000_000, 0, 0.0)
    queue.add(waiting(1, "steady"))
    queue.add(waiting(2, "steady"))
    queue.add(waiting(3, "back"))
    assert queue.tenant("back").counter == queue.tenant("steady").counter, "no credit for having been away"


def test_a_length_class_is_not_starved_by_one_with_longer_patience() -> None:
    queue = FairQueue()
    for number in range(20):
        queue.add(waiting(number, "a", length_class=65_536, start_by=10.0))
        queue.add(waiting(100 + number, "a", length_class=4_096, start_by=12.0))
    turns = []
    for _ in range(12):
        one = next(queue.in_order(0.0))
        queue.remove(one)
        queue.charge(queue.tenant("a"), one.length_class, 30_000 if one.length_class == 65_536 else 3_000, 0, 0.0)
        turns.append(one.length_class)
    assert turns.count(4_096) >= 10, "a long prompt costs as many turns as its tokens"


def test_tenants_seen_once_are_forgotten() -> None:
    queue = FairQueue()
    for number in range(20_000):
        queue.asked(f"tenant {number}", 1.0, float(number))
    assert len(queue.tenants) <= 4_097


def test_parts_are_of_what_was_given_lately_by_share_and_forget() -> None:
    queue = FairQueue()
    for number, (name, share) in enumerate((("one", 1.0), ("three", 3.0), ("offline", 1.0))):
        queue.asked(name, share, 0.0)
        queue.add(waiting(number, name))
    assert queue.parts(0.0) == {"one": 1.0, "three": 1.0, "offline": 1.0}, "nothing was given yet"
    for name, tokens in (("one", 500), ("three", 500), ("offline", 0)):
        queue.charge(queue.tenant(name), 0, tokens, 0, 0.0)
    parts = queue.parts(0.0)
    assert parts == pytest.approx({"one": 2.5, "three": 5 / 6, "offline": 0.0})
    assert queue.parts(1_000.0) == pytest.approx(parts), "as long as nobody is given anything it stays"
    queue.charge(queue.tenant("offline"), 0, 500, 0, 1_000.0)
    assert queue.parts(1_000.0)["one"] < 0.001, "long ago"
    queue.charge(queue.tenant("offline"), 0, -600, 0, 1_000.0)
    assert min(queue.parts(1_000.0).values()) >= 0.0, "more was taken back than was left of it"


def test_what_yields_is_in_nobodys_part() -> None:
    queue = FairQueue()
    for number, name in enumerate("ab"):
        queue.asked(name, 1.0, 0.0)
        queue.add(waiting(number, name))
    queue.add(waiting(9, "batch", priority=-10))
    queue.charge(queue.tenant("a"), 0, 100, 0, 0.0)
    before = queue.parts(0.0)
    queue.charge(queue.tenant(YIELDING + "batch"), 0, 1_000, 0, 0.0)
    assert queue.parts(0.0) == before
    assert before.keys() == {"a", "b"}
