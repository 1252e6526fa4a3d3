"""Requests with an adapter go where it is held, unless elsewhere is sooner all the same; places for adapters are given
back."""

from __future__ import annotations

import random

import msgspec
import pytest

from contracts.desired_state import DesiredState
from contracts.lease import Lease, LeaseEnd
from contracts.usage import Finish
from router.core.decisions import Granted
from router.core.events import Release, ReplicaPolled
from router.core.held_adapters import HeldAdapters
from router.core.reasons import Reason
from tests.router.core_driver import Core, refused
from tests.router.fakes import fleet


def adapted_fleet(most: int, *, replicas: tuple[str, ...] = ("r1", "r2"), version: int = 1) -> DesiredState:
    state = fleet(version, replicas=replicas)
    return msgspec.structs.replace(state, pools=(msgspec.structs.replace(state.pools[0], max_adapters=most),))


def lease(core: Core, lease_id: str, adapter: str) -> Lease:
    (decision,) = core.ask(lease_id, adapter=adapter)
    assert isinstance(decision, Granted), decision
    return decision.lease


def served(core: Core, lease_id: str, adapter: str) -> Lease:
    granted = lease(core, lease_id, adapter)
    core.began(lease_id)
    core.over(lease_id)
    return granted


def test_the_replica_that_holds_it_is_preferred_and_loads_nothing() -> None:
    core = Core(adapted_fleet(2))
    first = served(core, "one", "a")
    assert (first.load_adapter, first.evict_adapter) == (True, "")
    for number in range(3):
        again = served(core, f"again-{number}", "a")
        assert (again.engine.replica_id, again.load_adapter) == (first.engine.replica_id, False)


def test_what_is_being_loaded_is_asked_for_by_all_who_come_meanwhile() -> None:
    core = Core(adapted_fleet(1, replicas=("r1",)))
    assert [lease(core, name, "a").load_adapter for name in ("one", "two")] == [True, True]
    core.began("one")
    assert not lease(core, "three", "a").load_adapter


def test_the_one_that_was_used_longest_ago_gives_way_and_one_in_use_never() -> None:
    core = Core(adapted_fleet(2, replicas=("r1",)))
    served(core, "1", "a")
    served(core, "2", "b")
    served(core, "3", "a")
    assert lease(core, "4", "c").evict_adapter == "b"
    assert lease(core, "5", "d").evict_adapter == "a"
    assert core.ask("6", adapter="e") == [], "both places are in use: it waits"
    core.over("4")
    assert core.core.fleet.replicas["r1"].adapters.names == ()


def test_an_adapter_that_could_not_be_loaded_leaves_its_place() -> None:
    core = Core(adapted_fleet(1, replicas=("r1",)))
    lease(core, "one", "a")
    core.do(Release(1, LeaseEnd("one", Finish.ENGINE_ERROR, adapter_missing=True)))
    granted = lease(core, "two", "b")
    assert (granted.load_adapter, granted.evict_adapter) == (True, "")


def test_an_engine_that_lost_it_is_told_to_load_it_again() -> None:
    core = Core(adapted_fleet(1, replicas=("r1",)))
    served(core, "one", "a")
    assert not lease(core, "two", "a").load_adapter
    core.do(Release(1, LeaseEnd("two", Finish.ENGINE_ERROR, adapter_missing=True)))
    assert core.core.fleet.replicas["r1"].breaker.state.value == "closed"
    assert lease(core, "three", "a").load_adapter


def test_an_engine_that_died_holds_none() -> None:
    core = Core(adapted_fleet(1, replicas=("r1",)), failure_threshold=1)
    served(core, "one", "a")
    core.do(ReplicaPolled("r1", False, "away"))
    core.do(ReplicaPolled("r1", True))
    assert lease(core, "two", "a").load_adapter


def test_loading_elsewhere_is_worth_it_only_where_the_wait_is_longer() -> None:
    def second(adapter_load_s: float) -> str:
        core = Core(adapted_fleet(2), adapter_load_s=adapter_load_s)
        core.learn(0.001, ("r1", "r2"))
        holder = served(core, "one", "a").engine.replica_id
        others = tuple(name for name in core.core.fleet.replicas if name != holder)
        core.placed("busy", prompt_tokens=1_000, excluded_replicas=others)
        return "holder" if lease(core, "two", "a").engine.replica_id == holder else "other"

    assert (second(adapter_load_s=20.0), second(adapter_load_s=0.01)) == ("holder", "other")


def test_a_pool_that_takes_none_says_so() -> None:
    (refusal,) = refused(Core(adapted_fleet(0)).ask(adapter="a"))
    assert (refusal.code, refusal.cause) == ("no_engine_available", Reason.NO_ADAPTERS)
    assert "max_adapters" in refusal.reason


@pytest.mark.parametrize("seed", range(5))
def test_places_are_kept_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    held, most = HeldAdapters(), 3
    held.most = most
    running: list[str] = []
    for _ in range(400):
        name = dice.choice("abcdef")
        match dice.choice(("take", "take", "began", "give", "missing", "forget")):
            case "take" if held.admits(name):
                evicted = held.take(name)
                assert evicted not in running
                running.append(name)
            case "began" if name in running:
                held.began(name)
                assert held.loaded(name)
            case "give" if running:
                held.give(running.pop(dice.randrange(len(running))))
            case "missing":
                held.missing(name)
                assert not held.loaded(name)
            case "forget" if dice.random() < 0.1:
                held.forget()
                assert held.names == ()
        assert len(set(held.names) | set(running)) <= most
    for name in running:
        held.give(name)
    held.forget()
    assert all(held.take(name) == "" for name in "xyz")
