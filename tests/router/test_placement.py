"""Which engine, when, or not at all: the core's rules, one event at a time."""

from __future__ import annotations

import msgspec
import pytest

from contracts.desired_state import DesiredState
from contracts.lease import HeldLease, LeaseEnd
from contracts.usage import Finish
from engines.drivers.base import Load
from router.config import RouterConfig
from router.core.decisions import Decision, Disconnect, Granted, PollNow, Refused, Welcomed
from router.core.dispatcher import Dispatcher
from router.core.events import (
    Acquire,
    Cancel,
    DrainReplica,
    Event,
    GatewayConnected,
    GatewayDisconnected,
    Release,
    ReplicaPolled,
    StatePublished,
    Tick,
)
from router.core.replica import Health
from router.policies.least_load import LeastLoad
from tests.router.fakes import ask, fleet
from tests.router.integrity import check_integrity


class Router:
    """A core with a clock, one connected gateway and a healthy fleet."""

    def __init__(self, state: DesiredState | None = None, *, healthy: bool = True, **settings: object) -> None:
        self.core = Dispatcher(RouterConfig(**settings), LeastLoad())  # type: ignore[arg-type]
        self.now = 100.0
        self.do(GatewayConnected(1, "gateway", "epoch-1"))
        if state is not None:
            self.do(StatePublished(state))
            for replica_id in list(self.core.fleet.replicas) if healthy else []:
                self.do(ReplicaPolled(replica_id, True))

    def do(self, event: Event) -> list[Decision]:
        decisions = self.core.handle(event, self.now)
        check_integrity(self.core)
        return decisions

    def acquire(self, lease_id: str, **fields: object) -> list[Decision]:
        return self.do(Acquire(1, ask(lease_id, **fields)))  # type: ignore[arg-type]

    def placed(self, lease_id: str, **fields: object) -> str:
        return replica_of(self.acquire(lease_id, **fields))

    def refused(self, lease_id: str, **fields: object) -> Refused:
        return refusal(self.acquire(lease_id, **fields))

    def release(self, lease_id: str, *, fault: bool = False, finish: Finish = Finish.COMPLETE) -> list[Decision]:
        return self.do(Release(1, LeaseEnd(lease_id, finish, engine_fault=fault)))

    def leases(self, replica_id: str) -> int:
        return self.core.fleet.replicas[replica_id].leases


def replica_of(decisions: list[Decision]) -> str:
    (decision,) = decisions
    assert isinstance(decision, Granted)
    return decision.lease.engine.replica_id


def refusal(decisions: list[Decision]) -> Refused:
    (decision,) = decisions
    assert isinstance(decision, Refused)
    return decision


def test_a_grant_says_everything_needed_to_reach_the_engine() -> None:
    router = Router(fleet(replicas=("r1",)))
    (decision,) = router.acquire("l1", model="m-alias")
    assert isinstance(decision, Granted)
    engine = decision.lease.engine
    assert (engine.replica_id, engine.url, engine.driver) == ("r1", "http://127.0.0.1/r1", "fake")
    assert engine.model == "m-inside"
    assert decision.lease.queued_s == 0


def test_the_least_loaded_replica_is_chosen_at_once_not_after_its_next_report() -> None:
    router = Router(fleet(max_concurrency=100))
    chosen = [router.placed(f"l{number}") for number in range(10)]
    assert sorted(chosen) == ["r1"] * 5 + ["r2"] * 5


def test_load_the_engine_reports_beyond_our_leases_counts() -> None:
    router = Router(fleet(max_concurrency=100))
    router.do(ReplicaPolled("r1", True, load=Load(running=2, waiting=1)))
    assert [router.placed(f"l{number}") for number in range(3)] == ["r2", "r2", "r2"]


def test_our_own_leases_in_the_engines_report_are_not_counted_twice() -> None:
    router = Router(fleet(max_concurrency=100))
    for number in range(4):
        router.placed(f"l{number}")
    router.do(ReplicaPolled("r1", True, load=Load(running=2)))
    assert router.core.fleet.replicas["r1"].foreign == 0


def test_weights_share_out_the_load() -> None:
    router = Router(fleet(max_concurrency=100, r1=3.0, r2=1.0))
    chosen = [router.placed(f"l{number}") for number in range(40)]
    assert chosen.count("r1") == 30


def test_weight_zero_drains() -> None:
    router = Router(fleet())
    router.do(StatePublished(fleet(2, r1=0.0)))
    assert {router.placed(f"l{number}") for number in range(4)} == {"r2"}


def test_excluded_replicas_are_not_chosen_and_all_excluded_is_no_engine() -> None:
    router = Router(fleet())
    assert router.placed("l1", excluded=("r1",)) == "r2"
    assert router.refused("l2", excluded=("r1", "r2")).code == "no_engine_available"


def test_an_unknown_model_is_refused_for_good() -> None:
    refused = Router(fleet()).refused("l1", model="nowhere")
    assert (refused.code, refused.retry_after_s) == ("model_not_found", None)


def test_before_any_desired_state_the_router_is_unavailable() -> None:
    refused = Router().refused("l1")
    assert refused.code == "router_unavailable"
    assert refused.retry_after_s


def test_acquiring_twice_is_one_lease_with_one_answer() -> None:
    router = Router(fleet())
    first = router.acquire("l1")
    assert router.acquire("l1") == first
    assert router.leases(replica_of(first)) == 1


def test_a_late_copy_of_an_acquire_does_not_revive_a_lease() -> None:
    router = Router(fleet())
    router.placed("released")
    router.release("released")
    router.do(Cancel(1, "cancelled"))
    assert router.acquire("released") == []
    assert router.acquire("cancelled") == []


def test_a_cancel_that_crosses_its_grant_frees_the_place() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1))
    router.placed("l1")
    assert router.acquire("l2") == []
    assert replica_of(router.do(Cancel(1, "l1"))) == "r1"


def test_releasing_twice_frees_one_place() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("l1")
    router.placed("l2")
    router.release("l1")
    router.release("l1")
    assert router.leases("r1") == 1


def test_a_full_pool_queues_in_order_and_says_how_long_it_took() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1))
    router.placed("l1")
    assert router.acquire("l2") == []
    assert router.acquire("l3") == []
    router.now += 2.5
    (decision,) = router.release("l1")
    assert isinstance(decision, Granted)
    assert (decision.lease.lease_id, decision.lease.queued_s) == ("l2", 2.5)
    assert replica_of(router.release("l2")) == "r1"


def test_one_who_excludes_the_free_replica_does_not_hold_up_the_next() -> None:
    router = Router(fleet(max_concurrency=1))
    for lease_id in ("l1", "l2"):
        router.placed(lease_id)
    router.acquire("picky", excluded=("r1",))
    router.acquire("easy")
    on_r1 = next(live.lease_id for live in router.core.sessions["gateway"].leases.values() if live.replica_id == "r1")
    (decision,) = router.release(on_r1)
    assert isinstance(decision, Granted)
    assert decision.lease.lease_id == "easy"


def test_nobody_waits_past_the_deadline() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1))
    router.placed("l1")
    router.acquire("l2", deadline_s=5.0)
    assert router.core.next_wakeup() == router.now + 5.0
    router.now += 5.0
    refused = refusal(router.do(Tick()))
    assert (refused.lease_id, refused.code) == ("l2", "overloaded")
    assert router.core.next_wakeup() is None


def test_a_deadline_of_zero_never_queues() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1))
    assert router.placed("l1", deadline_s=0.0) == "r1"
    assert router.refused("l2", deadline_s=0.0).code == "overloaded"


def test_the_queue_is_bounded() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1), queue_length=2)
    router.placed("l1")
    assert router.acquire("l2") == router.acquire("l3") == []
    assert router.refused("l4").code == "overloaded"


def test_retry_after_grows_with_the_queue_and_the_length_of_leases() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=2), queue_length=4)
    router.placed("warm")
    router.now += 6.0
    router.release("warm")
    for number in range(2):
        router.placed(f"l{number}")
    short = router.refused("now", deadline_s=0.0).retry_after_s
    for number in range(4):
        router.acquire(f"q{number}")
    long = router.refused("full").retry_after_s
    assert (short, long) == (3.0, 15.0)  # places free every 6 s / 2: one turn, five turns


def test_no_healthy_engine_is_said_at_once_and_to_those_who_wait() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1), failure_threshold=2)
    router.placed("l1")
    router.acquire("l2")
    assert router.do(ReplicaPolled("r1", False, "refused")) == []
    assert refusal(router.do(ReplicaPolled("r1", False, "refused"))).code == "no_engine_available"
    refused = router.refused("l3")
    assert refused.code == "no_engine_available"
    assert refused.retry_after_s


def test_a_drained_pool_is_called_drained_and_not_unhealthy() -> None:
    router = Router(fleet(replicas=("r1", "r2")))
    router.do(DrainReplica("r1", True))
    assert router.placed("l1") == "r2"
    router.do(DrainReplica("r2", True))
    refused = router.refused("l2")
    assert (refused.code, refused.reason) == (
        "no_engine_available", f"All engines of {ask('x').model} are drained: they take no new requests."
    )  # fmt: skip
    router.do(DrainReplica("r1", False))
    assert router.placed("l3") == "r1"


def test_asks_wait_for_the_first_poll_of_a_new_replica() -> None:
    router = Router(fleet(replicas=("r1",)), healthy=False)
    assert router.acquire("l1") == []
    assert replica_of(router.do(ReplicaPolled("r1", True))) == "r1"


def test_one_success_brings_a_replica_back() -> None:
    router = Router(fleet(replicas=("r1",)), failure_threshold=1)
    router.do(ReplicaPolled("r1", False))
    assert router.refused("l1").code == "no_engine_available"
    router.do(ReplicaPolled("r1", True))
    assert router.placed("l2") == "r1"


def test_a_fault_makes_a_replica_suspect_until_the_next_poll() -> None:
    router = Router(fleet(replicas=("r1",)), failure_threshold=3)
    router.placed("l1")
    assert router.release("l1", fault=True, finish=Finish.ENGINE_ERROR) == [PollNow("r1")]
    assert router.acquire("l2") == []
    assert refusal(router.do(ReplicaPolled("r1", False, "refused"))).lease_id == "l2"
    assert router.core.fleet.replicas["r1"].health is Health.UNHEALTHY


def test_a_suspect_that_answers_is_used_again() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("l1")
    router.release("l1", fault=True, finish=Finish.ENGINE_ERROR)
    router.acquire("l2")
    assert replica_of(router.do(ReplicaPolled("r1", True))) == "r1"


def test_an_older_desired_state_is_ignored() -> None:
    router = Router(fleet(5))
    router.do(StatePublished(fleet(4, replicas=("old",))))
    assert set(router.core.fleet.replicas) == {"r1", "r2"}


def test_a_removed_replica_drains() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("l1")
    router.do(StatePublished(fleet(2, replicas=("r2",))))
    router.do(ReplicaPolled("r2", True))
    assert router.placed("l2") == "r2"
    assert router.leases("r1") == 1
    router.release("l1")
    assert "r1" not in router.core.fleet.replicas


def test_a_replica_with_a_new_url_is_another_engine() -> None:
    router = Router(fleet(replicas=("r1",)))
    moved = msgspec.json.decode(
        msgspec.json.encode(fleet(2, replicas=("r1",))).replace(b"127.0.0.1/r1", b"127.0.0.1/moved"), type=DesiredState
    )
    router.do(StatePublished(moved))
    assert router.acquire("l1") == []
    assert replica_of(router.do(ReplicaPolled("r1", True))) == "r1"


def test_those_who_wait_are_judged_anew_under_a_new_desired_state() -> None:
    router = Router(fleet(replicas=("r1",), max_concurrency=1))
    router.placed("l1")
    router.acquire("l2")
    router.acquire("l3")
    assert replica_of(router.do(StatePublished(fleet(2, replicas=("r1",), max_concurrency=2)))) == "r1"
    assert refusal(router.do(StatePublished(DesiredState(3)))).code == "model_not_found"


def test_leases_outlive_a_broken_stream_for_the_grace_period() -> None:
    router = Router(fleet(replicas=("r1",)), grace_s=10.0)
    router.placed("l1")
    router.do(GatewayDisconnected(1))
    router.now += 9.9
    router.do(Tick())
    assert router.leases("r1") == 1
    router.now += 0.2
    router.do(Tick())
    assert router.leases("r1") == 0
    assert not router.core.sessions


def test_a_gateway_back_within_grace_keeps_what_it_names() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("kept")
    router.placed("dropped")
    router.do(GatewayDisconnected(1))
    router.do(GatewayConnected(2, "gateway", "epoch-1", (HeldLease("kept", "r1", 10, 10),)))
    router.now += 1_000
    router.do(Tick())
    assert set(router.core.sessions["gateway"].leases) == {"kept"}


def test_a_new_router_adopts_the_leases_a_gateway_names() -> None:
    router = Router()
    (welcomed,) = router.do(GatewayConnected(2, "other", "epoch-9", (HeldLease("l1", "r1", 10, 20),)))
    assert welcomed == Welcomed(2, 0)
    router.do(StatePublished(fleet(replicas=("r1",), max_concurrency=1)))
    router.do(ReplicaPolled("r1", True))
    assert router.acquire("l2") == []
    assert replica_of(router.do(Release(2, LeaseEnd("l1", Finish.COMPLETE)))) == "r1"


def test_a_new_epoch_ends_the_leases_of_the_old_and_the_old_does_not_return() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("l1")
    decisions = router.do(GatewayConnected(2, "gateway", "epoch-2"))
    assert [type(decision) for decision in decisions] == [Disconnect, Welcomed]
    assert router.leases("r1") == 0
    (late,) = router.do(GatewayConnected(3, "gateway", "epoch-1", (HeldLease("l1", "r1", 10, 10),)))
    assert isinstance(late, Disconnect)
    assert router.leases("r1") == 0


def test_a_gateway_back_after_its_grace_is_adopted_anew() -> None:
    router = Router(fleet(replicas=("r1",)), grace_s=1.0)
    router.placed("l1")
    router.do(GatewayDisconnected(1))
    router.now += 2.0
    router.do(Tick())
    assert router.do(GatewayConnected(2, "gateway", "epoch-1", (HeldLease("l1", "r1", 10, 10),))) == [Welcomed(2, 1)]
    assert router.leases("r1") == 1


def test_a_copy_of_a_hello_ends_nothing() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("l1")
    assert router.do(GatewayConnected(1, "gateway", "epoch-1")) == []
    assert router.leases("r1") == 1


def test_a_replaced_stream_is_not_listened_to() -> None:
    router = Router(fleet(replicas=("r1",)))
    router.do(GatewayConnected(2, "gateway", "epoch-1"))
    assert router.do(Acquire(1, ask("l1"))) == []
    assert router.leases("r1") == 0


@pytest.mark.parametrize("stray", [Cancel(1, "nobody"), Release(1, LeaseEnd("nobody", Finish.COMPLETE))])
def test_strays_change_nothing(stray: Event) -> None:
    router = Router(fleet(replicas=("r1",)))
    router.placed("l1")
    assert router.do(stray) == []
    assert router.leases("r1") == 1
