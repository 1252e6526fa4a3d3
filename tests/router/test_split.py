"""Requests that are served whole or split over a pair, by what either would cost."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.lease import LeaseEnd
from contracts.usage import Finish
from router.core.decisions import Granted
from router.core.events import Cancel, GatewayConnected, GatewayDisconnected, Release, ReplicaPolled
from router.core.split import MARGIN, MEASURED_EVERY, TELLING_TRANSFERS, Costs, SplitRule, splits
from router.explain import told
from tests.examples import examples
from tests.router.core_driver import Core, granted, refused
from tools.planning.split import shorter

RATE_S = 1e-4
"""Of a prompt token, on the engines of these tests."""
seconds = st.floats(0, 10)


def state(most: int = 8) -> DesiredState:
    unified = Pool("u", "sglang", (Replica("u0", "http://u0"),), most, split_pool="d")
    prefill = Pool("p", "sglang", (Replica("p0", "http://p0", bootstrap_port=8_998),), most, role="prefill")
    decode = Pool("d", "sglang", (Replica("d0", "http://d0"),), most, role="decode", prefill_pool="p")
    return DesiredState(1, (Model("m", Tier.CHAT, "u", 65_536),), (unified, prefill, decode))


def taught() -> Core:
    """Its whole pool's speed is known, and one stream runs there."""
    core = Core(state())
    for number in range(40):
        prompt = 500 + 300 * (number % 7)
        assert core.served(prompt, 0.01 + prompt * RATE_S, model="m") == "u0"
    core.placed("stream", model="m")
    core.now += 0.01
    core.began("stream", 0.01)
    return core


def transferred(core: Core, seconds_per_token: float, times: int) -> list[str]:
    """Ask so many times for a prompt that would hold the stream up; who answered. Transfers take that long."""
    where = []
    for number in range(times):
        prompt = 2_000 + 100 * (number % 5)
        lease_id = f"{core.now}-{number}"
        where.append(core.placed(lease_id, prompt_tokens=prompt, model="m"))
        took_s = 0.01 + prompt * RATE_S + (prompt * seconds_per_token if where[-1] == "d0" else 0.0)
        core.now += took_s
        core.began(lease_id, took_s)
        core.over(lease_id, prompt)
        core.now += 2.0  # the stream has made up for its pauses
    return where


@pytest.mark.parametrize(("interference_ms", "transfer_ms"), [(95, 20), (8, 20), (20, 95), (0, 1)])
def test_with_nobody_in_front_it_is_the_planners_rule(interference_ms: int, transfer_ms: int) -> None:
    interference_s, transfer_s = interference_ms / 1e3, transfer_ms / 1e3
    assert splits(Costs(0.3, interference_s, 0.3, transfer_s), False) is shorter(transfer_s, interference_s)


@examples(nightly=60)
@given(seconds, seconds, seconds, seconds, st.booleans())
def test_the_rule_is_what_a_plain_comparison_says_outside_the_margin(
    whole_s: float, interference_s: float, pair_s: float, transfer_s: float, was: bool
) -> None:
    costs = Costs(whole_s, interference_s, pair_s, transfer_s)
    if abs(costs.advantage_s) > MARGIN * transfer_s:
        assert splits(costs, was) is (whole_s + interference_s - pair_s - transfer_s > 0)
    else:
        assert splits(costs, was) is was or costs.advantage_s == MARGIN * transfer_s == 0


@examples(nightly=40)
@given(st.floats(0, 1e-3), st.floats(0, 1e-8), st.floats(0, 0.1), st.floats(0, 1e-3), st.booleans())
def test_a_longer_prompt_is_never_served_whole_where_a_shorter_one_is_split(
    per_token_s: float, per_pair_s: float, start_s: float, moved_s: float, was: bool
) -> None:
    lengths = [2**order for order in range(17)]
    chosen = [
        splits(Costs(0.0, n * per_token_s + n * n / 2 * per_pair_s, 0.0, start_s + n * moved_s), was) for n in lengths
    ]
    first = chosen.index(True) if True in chosen else len(chosen)
    if start_s or not was:  # where nothing costs anything, what was is kept
        assert all(chosen[first:])


def test_around_equality_it_stays_on_its_side() -> None:
    chance = random.Random(1)
    rule = SplitRule()
    for _ in range(TELLING_TRANSFERS):
        rule.saw_transfer(1_000, 0.1)
    near = [Costs(0.0, 0.1 * (1 + 0.9 * MARGIN * chance.uniform(-1, 1)), 0.0, 0.1) for _ in range(100)]
    assert {rule.choose(1_000, costs).split for costs in near} == {False}
    assert rule.choose(1_000, Costs(0.0, 0.2, 0.0, 0.1)).split
    assert {rule.choose(1_000, costs).split for costs in near} == {True}
    assert not rule.choose(100, near[0]).split, "another length has a side of its own"


def test_what_stays_whole_is_measured_anew_now_and_then() -> None:
    rule = SplitRule()
    for _ in range(TELLING_TRANSFERS):
        rule.saw_transfer(1_000, 0.5)
    chosen = [rule.choose(1_000, Costs(0.0, 0.1, 0.0, 0.5)).split for _ in range(2 * MEASURED_EVERY)]
    assert [number for number, split in enumerate(chosen, 1) if split] == [MEASURED_EVERY, 2 * MEASURED_EVERY]


def test_transfers_are_learnt_from_first_tokens_and_decide() -> None:
    cheap = taught()
    assert transferred(cheap, RATE_S / 10, 60)[-10:] == ["d0"] * 10
    rule = cheap.core.fleet.pools["u"].split_rule
    assert rule.transfer_s(2_200) == pytest.approx(2_200 * RATE_S / 10, rel=0.5)
    dear = taught()
    where = transferred(dear, RATE_S * 2, 60)
    assert where[0] == "d0", "only what is tried can be measured"
    assert where[-10:] == ["u0"] * 10


def test_where_no_stream_is_held_up_it_is_served_whole() -> None:
    core = taught()
    core.over("stream")
    assert core.placed("one", prompt_tokens=4_000, model="m") == "u0"


def test_explain_tells_both_costs_and_the_choice() -> None:
    core = taught()
    transferred(core, RATE_S / 10, 30)
    core.placed("one", prompt_tokens=4_000, model="m", request_id="request")
    (record,) = core.core.records.of("request")
    assert record.pool == "d"
    assert record.split is not None
    assert record.split.costs is not None
    assert record.split.costs.interference_s == pytest.approx(4_000 * RATE_S, rel=0.3)
    text = told([record])
    assert "split over a pair: the pair costs less" in text
    assert "interference 4" in text
    assert "transfer " in text


@pytest.mark.parametrize(("dead", "where"), [(("p0",), "u0"), (("d0",), "u0"), (("u0",), "d0")])
def test_without_engines_on_one_side_the_other_serves(dead: tuple[str, ...], where: str) -> None:
    core = taught()
    for replica_id in dead:
        for _ in range(3):
            core.do(ReplicaPolled(replica_id, False, "down"))
    assert core.placed("one", prompt_tokens=8_000, model="m") == where


def test_without_any_engine_it_is_refused() -> None:
    core = taught()
    for replica_id in ("u0", "p0"):
        for _ in range(3):
            core.do(ReplicaPolled(replica_id, False, "down"))
    assert [one.code for one in refused(core.ask("one", model="m"))] == ["no_engine_available"]


def test_who_waits_for_a_pair_that_dies_is_served_whole() -> None:
    core = Core(state(most=1))
    for number in range(40):
        core.served(500 + 300 * (number % 7), 0.01 + (500 + 300 * (number % 7)) * RATE_S, model="m")
    for _ in range(3):
        core.do(ReplicaPolled("u0", False, "down"))
    assert core.placed("one", model="m") == "d0"
    assert core.ask("two", model="m") == []
    core.do(ReplicaPolled("u0", True))
    decisions = []
    for _ in range(3):
        decisions += core.do(ReplicaPolled("p0", False, "down"))
    assert [(one.lease.lease_id, one.lease.engine.replica_id) for one in decisions if isinstance(one, Granted)] == [
        ("two", "u0")
    ]


def test_an_adapter_stays_with_the_engines_that_take_any() -> None:
    core = taught()
    pools = tuple(msgspec.structs.replace(one, max_adapters=4 if one.name == "u" else 0) for one in state().pools)
    core.publish(DesiredState(2, state().models, pools))
    assert core.placed("one", prompt_tokens=8_000, model="m", adapter="a") == "u0"


@pytest.mark.parametrize("seed", range(2))
def test_the_books_are_zero_after_random_requests_and_kills(seed: int) -> None:
    chance = random.Random(seed)
    core = taught()
    live: list[str] = ["stream"]
    for number in range(250):
        core.now += chance.random() * 0.05
        action = chance.random()
        if action < 0.4 or not live:
            live += granted(core.ask(f"one-{number}", model="m", prompt_tokens=chance.randrange(1, 9_000)))
            continue
        if action < 0.45:
            core.do(ReplicaPolled(chance.choice(("u0", "p0", "d0")), chance.random() < 0.7, ""))
            continue
        lease_id = live[chance.randrange(len(live))]
        if action < 0.65:
            live += granted(core.began(lease_id, 0.01))
            continue
        live.remove(lease_id)
        if action < 0.75:
            live += granted(core.do(Cancel(1, lease_id)))
        elif action < 0.85:
            live += granted(core.do(Release(1, LeaseEnd(lease_id, Finish.ENGINE_ERROR, engine_fault=True))))
        else:
            live += granted(core.over(lease_id))
    core.do(GatewayDisconnected(1))
    core.do(GatewayConnected(2, "gateway", "epoch"))
    assert {one.leases for one in core.core.fleet.replicas.values()} == {0}
    assert all(pool.leases == 0 and not len(pool.queue) for pool in core.core.fleet.pools.values())


PAIR = (Pool("p", "sglang", role="prefill"), Pool("d", "sglang", role="decode", prefill_pool="p"))


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ((Pool("u", "sglang", split_pool="x"), *PAIR), "no pool named 'x'"),
        ((Pool("u", "sglang", split_pool="p"), *PAIR), "does not have the role 'decode'"),
        ((Pool("u", "vllm", split_pool="d"), *PAIR), "need the same driver"),
        (
            (Pool("u", "sglang", split_pool="d"), Pool("v", "sglang", split_pool="d"), *PAIR),
            "already takes requests of 'u'",
        ),
        ((Pool("q", "sglang", role="prefill", split_pool="d"), *PAIR), "only a unified pool has a split pool"),
    ],
)
def test_what_cannot_be_split_is_refused_by_field(pools: tuple[Pool, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as failure:
        DesiredState(1, (Model("m", Tier.CHAT, "d", 4_096),), pools).check()
    assert "split_pool" in str(failure.value)
