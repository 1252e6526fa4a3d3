"""The governor of drafts: its rule by properties, and what it does in a pool of each kind."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from contracts.desired_state import DesiredState, Pool, Replica
from contracts.errors import ConfigError
from contracts.speculation import SpeculationRule, Way
from router import explain
from router.control import messages as control
from router.core.decisions import Granted
from router.core.record import Record
from router.core.speculation import WINDOW_S, SpeculationGovernor, Switch
from router.core.split import Costs, SplitChoice
from router.metrics import RouterMetrics
from router.protocol import messages
from tests.examples import examples
from tests.router.core_driver import Core
from tests.router.fakes import fleet, queued

OFF_ABOVE, ON_BELOW, DWELL_S = 4.0, 2.0, 10.0
RULE = SpeculationRule(True, OFF_ABOVE, ON_BELOW, DWELL_S)
LONG_S = 20 * WINDOW_S + DWELL_S
loads = st.floats(0, 100)
in_band = st.floats(ON_BELOW, OFF_ABOVE)
pauses = st.floats(0, 60)


def switch(on: bool, dwell_s: float = DWELL_S) -> Switch:
    """In this state since long ago."""
    made = Switch(OFF_ABOVE, ON_BELOW, dwell_s)
    made.judge(0.0 if on else 100.0, -1e6)
    return made


@given(st.booleans(), st.lists(st.tuples(in_band, pauses)))
def test_no_noise_inside_the_band_switches_it(on: bool, noise: list[tuple[float, float]]) -> None:
    made, now = switch(on), 0.0
    for load, pause_s in noise:
        now += pause_s
        assert not made.judge(load, now)
    assert made.on is on
    assert made.switches == 0


@given(st.booleans(), st.lists(st.tuples(loads, pauses)))
def test_below_it_is_on_and_above_it_is_off_after_the_dwell_time(on: bool, noise: list[tuple[float, float]]) -> None:
    made, now = switch(on), 0.0
    for load, pause_s in noise:
        now += pause_s
        made.judge(load, now)
    made.judge(OFF_ABOVE + 0.01, now + 2 * DWELL_S)
    assert not made.on
    made.judge(ON_BELOW - 0.01, now + 4 * DWELL_S)
    assert made.on


@given(st.lists(st.tuples(loads, pauses)))
def test_what_it_became_it_stays_for_the_dwell_time(noise: list[tuple[float, float]]) -> None:
    made, now, times = Switch(OFF_ABOVE, ON_BELOW, DWELL_S), 0.0, [0.0]
    made.judge(0.0, now)
    for load, pause_s in noise:
        now += pause_s
        if made.judge(load, now):
            times.append(now)
    assert all(later - earlier >= DWELL_S for earlier, later in itertools.pairwise(times))


@given(st.lists(st.tuples(loads, st.floats(0, 50), pauses)))
def test_where_the_load_is_never_less_it_is_on_no_longer(noise: list[tuple[float, float, float]]) -> None:
    """Of two pools with the same history but for more load in one, without a dwell time."""
    less, more, now = Switch(OFF_ABOVE, ON_BELOW, 0.0), Switch(OFF_ABOVE, ON_BELOW, 0.0), 0.0
    for load, further, pause_s in noise:
        now += pause_s
        less.judge(load, now)
        more.judge(load + further, now)
        assert less.on or not more.on


def test_it_begins_off_where_the_first_load_does_not_say() -> None:
    made = Switch(OFF_ABOVE, ON_BELOW, DWELL_S)
    assert not made.judge((OFF_ABOVE + ON_BELOW) / 2, 0.0)
    assert not made.on


def test_a_burst_shorter_than_the_window_is_no_peak() -> None:
    governor = SpeculationGovernor(msgspec.structs.replace(RULE, dwell_s=0.0), Way.REQUEST)
    governor.saw(1.0, 0.0)
    governor.saw(2 * OFF_ABOVE, WINDOW_S / 20)
    assert governor.on
    governor.saw(2 * OFF_ABOVE, LONG_S)
    assert not governor.on


@examples(nightly=100, gate=8)
@given(st.integers(1, 3), st.floats(0.1, 2.0), st.floats(0.0, 1.0))
def test_the_load_of_clients_that_send_one_request_after_the_other_is_their_number(
    clients: int, request_s: float, pause_share: float
) -> None:
    core = Core(governed("embedded"))
    pause_s = request_s * pause_share
    for turn in range(int(8 * WINDOW_S / (request_s + pause_s)) + 1):
        live = [f"of-{client}-{turn}" for client in range(clients)]
        for lease_id in live:
            core.placed(lease_id)
        core.now += request_s
        for lease_id in live:
            core.over(lease_id)
        core.now += pause_s
    governor = core.core.fleet.pools["pool"].governor
    assert governor is not None
    # two replicas; in a pause it sinks, in a request it rises, by no more than these are of the window
    moves = clients / 2 * (request_s + pause_s) / WINDOW_S
    assert governor.load == pytest.approx(clients / 2 / (1 + pause_share), abs=moves + 0.01)


def governed(
    driver: str, places: int = 8, rule: SpeculationRule = RULE, version: int = 1, **drafts: bool
) -> DesiredState:
    """A pool of replicas that draft or do not; of `r1` and `r2` where nothing is said of them."""
    state = fleet(replicas=tuple(drafts or ("r1", "r2")), max_concurrency=places)
    replicas = tuple(
        msgspec.structs.replace(one, speculation=drafts.get(one.id, False)) for one in state.pools[0].replicas
    )
    pool = msgspec.structs.replace(state.pools[0], driver=driver, replicas=replicas, speculation=rule)
    return msgspec.structs.replace(state, version=version, pools=(pool,))


class Loaded:
    """A core whose pool is given so many leases and is then looked at until its mean has settled."""

    def __init__(self, state: DesiredState, policy: str = "prefix") -> None:
        self.core = Core(state, policy)
        self.live: list[str] = []
        self.settle()

    def settle(self) -> None:
        for _ in range(60):
            self.core.now += LONG_S / 60
            for replica_id in self.core.core.fleet.replicas:
                self.core.polled(replica_id)

    def become(self, leases: int) -> None:
        while len(self.live) > leases:
            self.core.over(self.live.pop())
        while len(self.live) < leases:
            self.live.append(f"held-{self.core.now}-{len(self.live)}")
            self.core.placed(self.live[-1])
            self.core.began(self.live[-1], 0.01)
        self.settle()

    def granted(self, **fields: Any) -> Granted:
        """One more, over at once."""
        (decision,) = self.core.ask(lease_id := f"one-{self.core.now}-{id(fields)}", **fields)
        assert isinstance(decision, Granted)
        self.core.over(lease_id)
        return decision


def test_an_embedded_pool_is_told_with_the_grant_at_low_load_at_the_peak_and_back() -> None:
    loaded = Loaded(governed("embedded"))
    told = []
    for leases in (1, 6, 12, 6, 1):
        loaded.become(leases)
        told.append(messages.lease_of(messages.grant(loaded.granted().lease).grant).no_drafts)
    assert told == [False, False, True, True, False], "in between it stays as it was"


def test_a_request_that_waits_counts() -> None:
    """Two replicas with a place each are full: what waits is load as well."""
    loaded = Loaded(governed("embedded", places=1))
    loaded.become(2)
    pool = loaded.core.core.fleet.pools["pool"]
    assert not pool.no_drafts
    for number in range(10):
        loaded.core.ask(f"waits-{number}", deadline_s=1e6)
    assert queued(loaded.core.core) == 10
    loaded.settle()
    assert pool.no_drafts


@pytest.mark.parametrize("driver", ["sglang", "tensorrt_llm"])
def test_an_engine_that_knows_no_such_field_is_never_told(driver: str) -> None:
    loaded = Loaded(governed(driver, r1=True, r2=False))
    for leases in (0, 12):
        loaded.become(leases)
        assert not loaded.granted().lease.no_drafts


@pytest.mark.parametrize("policy", ["prefix", "least_load", "consistent_hash"])
def test_of_two_variants_the_one_that_fits_the_load_is_given_more(policy: str) -> None:
    loaded = Loaded(governed("tensorrt_llm", r1=True, r2=False), policy)
    pool = loaded.core.core.fleet.pools["pool"]

    def drafting_share() -> float:
        asks = [loaded.core.placed(f"a-{loaded.core.now}-{number}", session_id=f"s{number}") for number in range(8)]
        for number in range(8):
            loaded.core.over(f"a-{loaded.core.now}-{number}")
        return asks.count("r1") / len(asks)

    assert pool.governor is not None
    assert pool.governor.on
    assert 0.5 < drafting_share() < 1.0, "the other is not left idle"
    loaded.become(12)
    assert not pool.governor.on
    held = [replica.leases for replica in pool.replicas]
    for lease in [*loaded.live]:
        loaded.core.over(lease)
    loaded.live.clear()
    assert 0.0 < drafting_share() < 0.5, held


@given(st.lists(st.sampled_from(["ask", "end", "settle"]), max_size=60))
def test_no_place_is_left_empty_while_a_request_waits(steps: list[str]) -> None:
    """Whichever variant is preferred."""
    core, live = Core(governed("tensorrt_llm", r1=True, r2=False, r3=False)), list[str]()
    for number, step in enumerate(steps):
        core.now += 1.0
        if step == "ask":
            core.ask(f"lease-of-{number}", deadline_s=1e6)
        elif step == "end" and live:
            core.over(live.pop(0))
        elif step == "settle":
            core.now += LONG_S
            core.polled("r1")
        live = [key[1] for replica in core.core.fleet.replicas.values() for key in replica.live]
        pool = core.core.fleet.pools["pool"]
        assert not len(pool.queue) or not any(replica.free for replica in pool.replicas)


def test_drafts_are_no_part_of_any_prediction_of_the_first_token() -> None:
    """Two pools with one history: with drafts on, off and not governed the same times are predicted."""
    predicted = []
    for rule in (SpeculationRule(), RULE, SpeculationRule(True, 0.02, 0.01, 0.0)):
        core = Core(governed("embedded", rule=rule))
        core.learn(1e-4, ("r1", "r2"))
        core.ask("asked", prompt_tokens=900)
        (record,) = core.core.records.of("req_asked")
        predicted.append([(one.replica_id, one.predicted_s, one.cost) for one in record.candidates])
    assert predicted[0] == predicted[1] == predicted[2]


def test_a_rule_that_is_only_published_again_keeps_its_state() -> None:
    loaded = Loaded(governed("embedded"))
    loaded.become(12)
    loaded.core.publish(governed("embedded", version=2))
    assert loaded.core.core.fleet.pools["pool"].no_drafts
    loaded.core.publish(governed("embedded", rule=SpeculationRule(), version=3))
    assert not loaded.core.core.fleet.pools["pool"].no_drafts


def test_variants_weigh_the_same_again_when_nobody_governs_them() -> None:
    core = Core(governed("tensorrt_llm", r1=True, r2=False))
    core.polled("r1")
    pool = core.core.fleet.pools["pool"]
    assert pool.weighted
    core.publish(governed("tensorrt_llm", rule=SpeculationRule(), version=2, r1=True, r2=False))
    assert not pool.weighted
    assert pool.weight == 2.0


def test_it_is_told_to_whoever_asks() -> None:
    loaded = Loaded(governed("embedded"))
    loaded.become(12)
    loaded.core.ask("asked")
    (record,) = loaded.core.core.records.of("req_asked")
    assert "drafts: off: 6.0 requests a replica, on below 2" in explain.told([record])
    assert control.record(control.decision(record)).speculation == record.speculation
    assert control.fleet(loaded.core.core, "epoch").pools[0].speculation.startswith("off: 6.")
    shown = generate_latest(RouterMetrics(loaded.core.core).registry).decode()
    assert 'slipstream_router_speculation_on{pool="pool"} 0.0' in shown
    assert 'slipstream_router_speculation_switches_total{pool="pool"} 1.0' in shown


def test_drafts_that_engines_tell_of_with_their_load_are_counted_by_pool() -> None:
    core = Core(governed("tensorrt_llm", r1=True, r2=False))
    for _ in range(2):
        core.polled("r1", draft_tokens=9, accepted_draft_tokens=4)
    core.polled("r2")
    shown = generate_latest(RouterMetrics(core.core).registry).decode()
    assert 'slipstream_router_draft_tokens_total{pool="pool"} 18.0' in shown
    assert 'slipstream_router_accepted_draft_tokens_total{pool="pool"} 8.0' in shown


@pytest.mark.parametrize("costs", [None, Costs(1.0, 2.0, 3.0, 4.0)])
def test_a_record_crosses_the_control_service_as_it_is(costs: Costs | None) -> None:
    record = Record(
        "req",
        "lease",
        1,
        "m",
        "pool",
        "prefix",
        "organization",
        10,
        1,
        1.0,
        0.0,
        chosen="r1",
        adapter="lora-1",
        adapter_load=True,
        adapter_evicted="lora-2",
        evicted_why="of the same organization",
        speculation="on",
        split=SplitChoice(True, "cheaper", costs),
    )
    for one in (record, msgspec.structs.replace(record, split=None)):
        assert control.record(control.decision(one)) == one


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("vllm", "the driver vllm cannot switch it"),
        ("openai", "the driver openai cannot switch it"),
        ("embedded", "as each engine"),
    ],
)
def test_of_a_pool_that_nobody_governs_it_is_said_why(driver: str, said: str) -> None:
    core = Core(governed(driver, rule=SpeculationRule()))
    core.ask("asked")
    (record,) = core.core.records.of("req_asked")
    assert said in explain.told([record])
    assert b"speculation_on{" not in generate_latest(RouterMetrics(core.core).registry)


def test_of_sglang_it_is_said_that_its_own_table_decides() -> None:
    core = Core(governed("sglang"))
    core.ask("asked")
    (record,) = core.core.records.of("req_asked")
    assert "own table" in record.speculation


GOVERNED = SpeculationRule(governed=True)


@pytest.mark.parametrize(
    ("pool", "field"),
    [
        (Pool("p", "embedded", speculation=SpeculationRule(False, 4, 4)), "on_below_running"),
        (Pool("p", "vllm", speculation=GOVERNED), "governed"),
        (Pool("p", "openai", speculation=GOVERNED), "governed"),
        (Pool("p", "sglang", role="prefill", speculation=GOVERNED), "governed"),
        (Pool("p", "tensorrt_llm", (Replica("r", "http://r:1"),), speculation=GOVERNED), "governed"),
    ],
)
def test_what_cannot_be_governed_is_refused(pool: Pool, field: str) -> None:
    with pytest.raises(ConfigError) as refused:
        DesiredState(1, pools=(pool,)).check()
    assert refused.value.param == f"pools.p.speculation.{field}"
