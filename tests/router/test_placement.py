"""Which engine, when, or not at all: the core's rules, one event at a time."""

from __future__ import annotations

import msgspec
import pytest

from contracts.desired_state import DesiredState
from contracts.lease import HeldLease, LeaseEnd
from contracts.usage import Finish
from engines.drivers.base import Load
from router.core.decisions import Decision, Disconnect, Granted, PollNow, Refused, Welcomed
from router.core.events import (
    Acquire,
    Cancel,
    DrainReplica,
    GatewayConnected,
    GatewayDisconnected,
    Release,
    ReplicaPolled,
    StatePublished,
    Tick,
)
from router.core.replica import Health
from tests.router.core_driver import Core
from tests.router.fakes import ask, fleet


def least_load(state: DesiredState, **settings: object) -> Core:
    """A core with one connected gateway and a healthy fleet."""
    return Core(state, "least_load", **settings)


def leases(core: Core, replica_id: str) -> int:
    return core.core.fleet.replicas[replica_id].leases


def replica_of(decisions: list[Decision]) -> str:
    (decision,) = decisions
    assert isinstance(decision, Granted)
    return decision.lease.engine.replica_id


def refusal(decisions: list[Decision]) -> Refused:
    (decision,) = decisions
    assert isinstance(decision, Refused)
    return decision


def test_a_grant_says_everything_needed_to_reach_the_engine() -> None:
    core = least_load(fleet(replicas=("r1",)))
    (decision,) = core.ask("l1", model="m-alias")
    assert isinstance(decision, Granted)
    engine = decision.lease.engine
    assert (engine.replica_id, engine.url, engine.driver) == ("r1", "http://127.0.0.1/r1", "fake")
    assert engine.model == "m-inside"
    assert decision.lease.queued_s == 0


def test_the_least_loaded_replica_is_chosen_at_once_not_after_its_next_report() -> None:
    core = least_load(fleet(max_concurrency=100))
    chosen = [core.placed(f"l{number}") for number in range(10)]
    assert sorted(chosen) == ["r1"] * 5 + ["r2"] * 5


def test_load_the_engine_reports_beyond_our_leases_counts() -> None:
    core = least_load(fleet(max_concurrency=100))
    core.do(ReplicaPolled("r1", True, load=Load(running=2, waiting=1)))
    assert [core.placed(f"l{number}") for number in range(3)] == ["r2", "r2", "r2"]


def test_our_own_leases_in_the_engines_report_are_not_counted_twice() -> None:
    core = least_load(fleet(max_concurrency=100))
    for number in range(4):
        core.placed(f"l{number}")
    core.do(ReplicaPolled("r1", True, load=Load(running=2)))
    assert core.core.fleet.replicas["r1"].foreign == 0


def test_weights_share_out_the_load() -> None:
    core = least_load(fleet(max_concurrency=100, r1=3.0, r2=1.0))
    chosen = [core.placed(f"l{number}") for number in range(40)]
    assert chosen.count("r1") == 30


def test_weight_zero_drains() -> None:
    core = least_load(fleet())
    core.do(StatePublished(fleet(2, r1=0.0)))
    assert {core.placed(f"l{number}") for number in range(4)} == {"r2"}


def test_excluded_replicas_are_not_chosen_and_all_excluded_is_no_engine() -> None:
    core = least_load(fleet())
    assert core.placed("l1", excluded_replicas=("r1",)) == "r2"
    assert refusal(core.ask("l2", excluded_replicas=("r1", "r2"))).code == "no_engine_available"


def test_an_unknown_model_is_refused_for_good() -> None:
    refused = refusal(least_load(fleet()).ask("l1", model="nowhere"))
    assert (refused.code, refused.retry_after_s) == ("model_not_found", None)


def test_before_any_desired_state_the_router_is_unavailable() -> None:
    refused = refusal(least_load(DesiredState(0)).ask("l1"))
    assert refused.code == "router_unavailable"
    assert refused.retry_after_s


def test_acquiring_twice_is_one_lease_with_one_answer() -> None:
    core = least_load(fleet())
    first = core.ask("l1")
    assert core.ask("l1") == first
    assert leases(core, replica_of(first)) == 1


def test_a_late_copy_of_an_acquire_does_not_revive_a_lease() -> None:
    core = least_load(fleet())
    core.placed("released")
    core.over("released")
    core.do(Cancel(1, "cancelled"))
    assert core.ask("released") == []
    assert core.ask("cancelled") == []


def test_a_full_pool_queues_in_order_and_says_how_long_it_took() -> None:
    core = least_load(fleet(replicas=("r1",), max_concurrency=1))
    core.placed("l1")
    assert core.ask("l2") == []
    assert core.ask("l3") == []
    core.now += 2.5
    (decision,) = core.over("l1")
    assert isinstance(decision, Granted)
    assert (decision.lease.lease_id, decision.lease.queued_s) == ("l2", 2.5)
    assert replica_of(core.over("l2")) == "r1"


def test_one_who_excludes_the_free_replica_does_not_hold_up_the_next() -> None:
    core = least_load(fleet(max_concurrency=1))
    for lease_id in ("l1", "l2"):
        core.placed(lease_id)
    core.ask("picky", excluded_replicas=("r1",))
    core.ask("easy")
    on_r1 = next(live.lease_id for live in core.core.sessions["gateway"].leases.values() if live.replica_id == "r1")
    (decision,) = core.over(on_r1)
    assert isinstance(decision, Granted)
    assert decision.lease.lease_id == "easy"


def test_nobody_waits_past_the_deadline() -> None:
    core = least_load(fleet(replicas=("r1",), max_concurrency=1))
    core.placed("l1")
    core.ask("l2", deadline_s=5.0)
    assert core.core.next_wakeup() == core.now + 5.0
    core.now += 5.0
    refused = refusal(core.do(Tick()))
    assert (refused.lease_id, refused.code) == ("l2", "overloaded")
    assert core.core.next_wakeup() is None


def test_retry_after_grows_with_the_queue_and_the_length_of_leases() -> None:
    core = least_load(fleet(replicas=("r1",), max_concurrency=2), queue_length=4)
    core.placed("warm")
    core.now += 6.0
    core.over("warm")
    for number in range(2):
        core.placed(f"l{number}")
    short = refusal(core.ask("now", deadline_s=0.0)).retry_after_s
    for number in range(4):
        core.ask(f"q{number}")
    long = refusal(core.ask("full")).retry_after_s
    assert (short, long) == (3.0, 15.0)  # places free every 6 s / 2: one turn, five turns


def test_no_healthy_engine_is_said_at_once_and_to_those_who_wait() -> None:
    core = least_load(fleet(replicas=("r1",), max_concurrency=1), failure_threshold=2)
    core.placed("l1")
    core.ask("l2")
    assert core.do(ReplicaPolled("r1", False, "refused")) == []
    assert refusal(core.do(ReplicaPolled("r1", False, "refused"))).code == "no_engine_available"
    refused = refusal(core.ask("l3"))
    assert refused.code == "no_engine_available"
    assert refused.retry_after_s


def test_a_drained_pool_is_called_drained_and_not_unhealthy() -> None:
    core = least_load(fleet(replicas=("r1", "r2")))
    core.do(DrainReplica("r1", True))
    assert core.placed("l1") == "r2"
    core.do(DrainReplica("r2", True))
    refused = refusal(core.ask("l2"))
    assert (refused.code, refused.reason) == (
        "no_engine_available", f"All engines of {ask('x').model} are drained: they take no new requests."
    )  # fmt: skip
    core.do(DrainReplica("r1", False))
    assert core.placed("l3") == "r1"


def test_a_fault_makes_a_replica_suspect_until_the_next_poll() -> None:
    core = least_load(fleet(replicas=("r1",)), failure_threshold=3)
    core.placed("l1")
    assert core.over("l1", fault=True) == [PollNow("r1")]
    assert core.ask("l2") == []
    assert refusal(core.do(ReplicaPolled("r1", False, "refused"))).lease_id == "l2"
    assert core.core.fleet.replicas["r1"].health is Health.UNHEALTHY


def test_an_older_desired_state_is_ignored() -> None:
    core = least_load(fleet(5))
    core.do(StatePublished(fleet(4, replicas=("old",))))
    assert set(core.core.fleet.replicas) == {"r1", "r2"}


def test_a_removed_replica_drains() -> None:
    core = least_load(fleet(replicas=("r1",)))
    core.placed("l1")
    core.do(StatePublished(fleet(2, replicas=("r2",))))
    core.do(ReplicaPolled("r2", True))
    assert core.placed("l2") == "r2"
    assert leases(core, "r1") == 1
    core.over("l1")
    assert "r1" not in core.core.fleet.replicas


def test_a_replica_with_a_new_url_is_another_engine() -> None:
    core = least_load(fleet(replicas=("r1",)))
    moved = msgspec.json.decode(
        msgspec.json.encode(fleet(2, replicas=("r1",))).replace(b"127.0.0.1/r1", b"127.0.0.1/moved"), type=DesiredState
    )
    core.do(StatePublished(moved))
    assert core.ask("l1") == []
    assert replica_of(core.do(ReplicaPolled("r1", True))) == "r1"


def test_an_engine_is_not_blamed_for_requests_of_the_one_that_it_replaced() -> None:
    core = least_load(fleet(replicas=("r1",), max_concurrency=8))
    for number in range(6):
        core.placed(f"l{number}", organization_id=f"o{number % 2}")
    moved = msgspec.json.encode(fleet(2, replicas=("r1",), max_concurrency=8)).replace(b"0.0.1/r1", b"0.0.1/moved")
    core.do(StatePublished(msgspec.json.decode(moved, type=DesiredState)))
    core.do(ReplicaPolled("r1", True))
    for number in range(6):
        core.over(f"l{number}", fault=True)
    assert core.placed("next", organization_id="o0") == "r1"
    core.over("next", fault=True)
    assert core.core.fleet.replicas["r1"].accusers == {"o0"}


def test_those_who_wait_are_judged_anew_under_a_new_desired_state() -> None:
    core = least_load(fleet(replicas=("r1",), max_concurrency=1))
    core.placed("l1")
    core.ask("l2")
    core.ask("l3")
    assert replica_of(core.do(StatePublished(fleet(2, replicas=("r1",), max_concurrency=2)))) == "r1"
    assert refusal(core.do(StatePublished(DesiredState(3)))).code == "model_not_found"


def test_leases_outlive_a_broken_stream_for_the_grace_period() -> None:
    core = least_load(fleet(replicas=("r1",)), grace_s=10.0)
    core.placed("l1")
    core.do(GatewayDisconnected(1))
    core.now += 9.9
    core.do(Tick())
    assert leases(core, "r1") == 1
    core.now += 0.2
    core.do(Tick())
    assert leases(core, "r1") == 0
    assert not core.core.sessions


def test_a_gateway_back_within_grace_keeps_what_it_names() -> None:
    core = least_load(fleet(replicas=("r1",)))
    core.placed("kept")
    core.placed("dropped")
    core.do(GatewayDisconnected(1))
    core.do(GatewayConnected(2, "gateway", "epoch", (HeldLease("kept", "r1", 10, 10),)))
    core.now += 1_000
    core.do(Tick())
    assert set(core.core.sessions["gateway"].leases) == {"kept"}


def test_a_first_token_that_is_reported_late_counts_from_when_it_came() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.placed("one", max_output_tokens=101)
    core.now += 5.0
    core.began("one", 0.2)
    core.now += 5.2
    core.over("one", completion=101)
    assert core.core.fleet.pools["pool"].latency_model.token_s(1) == pytest.approx(0.1, rel=0.05)


def test_a_hello_decides_where_a_lease_runs_and_revives_none_that_has_ended() -> None:
    core = least_load(fleet(replicas=("r1", "r2")))
    here, _ = core.placed("moved"), core.placed("ended")
    there = {"r1": "r2", "r2": "r1"}[here]
    core.over("ended")
    held = HeldLease("moved", there, 10, 10), HeldLease("ended", here, 10, 10)  # the end was on its way
    core.do(GatewayConnected(2, "gateway", "epoch", held))
    assert (leases(core, here), leases(core, there)) == (0, 1)


def test_a_new_router_adopts_the_leases_a_gateway_names() -> None:
    core = least_load(DesiredState(0))
    (welcomed,) = core.do(GatewayConnected(2, "other", "epoch-9", (HeldLease("l1", "r1", 10, 20),)))
    assert welcomed == Welcomed(2, 0)
    core.do(StatePublished(fleet(replicas=("r1",), max_concurrency=1)))
    core.do(ReplicaPolled("r1", True))
    assert core.ask("l2") == []
    assert replica_of(core.do(Release(2, LeaseEnd("l1", Finish.COMPLETE)))) == "r1"


def test_a_new_epoch_ends_the_leases_of_the_old_and_the_old_does_not_return() -> None:
    core = least_load(fleet(replicas=("r1",)))
    core.placed("l1")
    decisions = core.do(GatewayConnected(2, "gateway", "epoch-2"))
    assert [type(decision) for decision in decisions] == [Disconnect, Welcomed]
    assert leases(core, "r1") == 0
    (late,) = core.do(GatewayConnected(3, "gateway", "epoch", (HeldLease("l1", "r1", 10, 10),)))
    assert isinstance(late, Disconnect)
    assert leases(core, "r1") == 0


def test_a_gateway_back_after_its_grace_is_adopted_anew() -> None:
    core = least_load(fleet(replicas=("r1",)), grace_s=1.0)
    core.placed("l1")
    core.do(GatewayDisconnected(1))
    core.now += 2.0
    core.do(Tick())
    assert core.do(GatewayConnected(2, "gateway", "epoch", (HeldLease("l1", "r1", 10, 10),))) == [Welcomed(2, 1)]
    assert leases(core, "r1") == 1


def test_a_copy_of_a_hello_ends_nothing() -> None:
    core = least_load(fleet(replicas=("r1",)))
    core.placed("l1")
    assert core.do(GatewayConnected(1, "gateway", "epoch")) == []
    assert leases(core, "r1") == 1


def test_a_replaced_stream_is_not_listened_to() -> None:
    core = least_load(fleet(replicas=("r1",)))
    core.do(GatewayConnected(2, "gateway", "epoch"))
    assert core.do(Acquire(1, ask("l1"))) == []
    assert leases(core, "r1") == 0
