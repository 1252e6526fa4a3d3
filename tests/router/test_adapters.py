"""Requests with an adapter go where it is held, unless elsewhere is sooner all the same; places for adapters are given
back."""

from __future__ import annotations

import random

import pytest

from contracts.lease import LeaseEnd
from contracts.usage import Finish
from router.core.adapter_places import PlacedAdapter, evicted_for
from router.core.decisions import Granted
from router.core.events import Release, ReplicaPolled
from router.core.held_adapters import HeldAdapters
from router.core.reasons import Reason
from router.explain import told
from tests.router.adapted import adapted_fleet, lease, served
from tests.router.core_driver import Core, refused
from tests.router.fakes import ask

OWNERS = {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "f": "z"}


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
    assert refusal.reason == "The engines of m that this request may use do not support adapters."


@pytest.mark.parametrize("seed", range(5))
def test_places_are_kept_whatever_happens(seed: int) -> None:
    dice = random.Random(seed)
    held, most = HeldAdapters(), 3
    held.most, held.recent_s = most, 5.0
    running: list[str] = []
    for now in range(400):
        name = dice.choice("abcdef")
        organization_id = OWNERS[name]
        match dice.choice(("take", "take", "began", "give", "missing", "forget")):
            case "take" if held.admits(name, organization_id, now):
                evicted = held.take(name, organization_id, now)
                assert evicted is None or evicted.name not in running
                running.append(name)
            case "began" if name in running:
                held.began(name)
                assert held.loaded(name)
            case "give" if running:
                held.give(running.pop(dice.randrange(len(running))), now)
            case "missing":
                held.missing(name)
                assert not held.loaded(name)
            case "forget" if dice.random() < 0.1:
                held.forget()
                assert held.names == ()
        assert len(set(held.names) | set(running)) <= most
    for name in running:
        held.give(name, 400)
    held.forget()
    assert not held.used
    assert all(held.take(name, "x", 500) is None for name in "xyz")


def test_one_organization_with_many_adapters_leaves_the_others_theirs() -> None:
    core = Core(adapted_fleet(4, replicas=("r1",)))
    served(core, "0", "theirs", "quiet")
    for number in range(30):
        core.now += 1.0
        granted = served(core, f"many-{number}", f"ours-{number}", "loud")
        assert granted.evict_adapter != "theirs"
        if number % 10 == 9:
            assert not served(core, f"their-{number}", "theirs", "quiet").load_adapter
    assert granted.evict_adapter == "ours-26", "its own that it used longest ago"


def test_who_has_used_none_of_late_has_no_share() -> None:
    core = Core(adapted_fleet(4, replicas=("r1",)), adapter_recent_s=60.0)
    served(core, "0", "theirs", "quiet")
    for number in range(3):
        served(core, f"many-{number}", f"ours-{number}", "loud")
    core.now += 61.0
    assert served(core, "one-more", "ours-3", "loud").evict_adapter == "theirs"


def test_who_has_all_of_its_share_in_use_waits_and_is_served_when_one_of_its_own_ends() -> None:
    core = Core(adapted_fleet(2, replicas=("r1",)))
    served(core, "0", "theirs", "quiet")
    lease(core, "1", "ours-1", "loud")
    assert core.ask("2", adapter="ours-2", organization_id="loud") == []
    (granted,) = (one for one in core.over("1") if isinstance(one, Granted))
    assert (granted.lease.lease_id, granted.lease.evict_adapter) == ("2", "")
    assert core.core.fleet.replicas["r1"].adapters.names == ("theirs",), "its own was never seen to be loaded"


def test_who_waits_for_anothers_share_gets_it_once_it_has_not_been_used_for_long() -> None:
    core = Core(adapted_fleet(2, replicas=("r1",)), adapter_recent_s=60.0)
    served(core, "0", "theirs", "quiet")
    lease(core, "1", "ours-1", "loud")
    assert core.ask("2", adapter="ours-2", organization_id="loud", deadline_s=100.0) == []
    core.now += 59.0
    assert core.polled() == []
    core.now += 2.0
    (granted,) = (one for one in core.polled() if isinstance(one, Granted))
    assert (granted.lease.lease_id, granted.lease.evict_adapter) == ("2", "theirs")


def test_a_newcomer_gets_the_place_of_who_holds_the_most_and_the_record_says_why() -> None:
    core = Core(adapted_fleet(4, replicas=("r1",)))
    for name, owner in (("a", "quiet"), ("b", "loud"), ("c", "loud"), ("d", "loud")):
        core.now += 1.0
        served(core, name, name, owner)
    assert lease(core, "new", "e", "newcomer").evict_adapter == "b"
    (record,) = core.core.records.of(ask("new").request_id)
    assert (record.adapter, record.adapter_load, record.adapter_evicted) == ("e", True, "b")
    assert "3 of 4 slots; an even share is 1.33" in record.evicted_why
    assert "adapter e: loaded first, into the slot of b" in told([record])


def naive(organization_id: str, held: list[PlacedAdapter], places: int, now: float, recent_s: float) -> str | None:
    """Tries every adapter: whether it may go, and how soon it should."""

    def owned(owner: str) -> int:
        return sum(one.organization_id == owner for one in held) + (owner == organization_id)

    owners = sorted({one.organization_id for one in held} | {organization_id})
    active = [
        owner
        for owner in owners
        if owner == organization_id
        or any(one.organization_id == owner and (one.in_use or one.used_at >= now - recent_s) for one in held)
    ]
    may = []
    for one in held:
        holds, active_owner = owned(one.organization_id), one.organization_id in active
        if not one.in_use and not (active_owner and holds * len(active) <= places):
            may.append((active_owner, -holds if active_owner else 0, one.used_at, one.name))
    return sorted(may)[0][3] if may else None


@pytest.mark.parametrize("seed", range(5))
def test_who_goes_is_who_the_plain_rule_names(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(200):
        places, now, recent_s = dice.randint(1, 8), 100.0, dice.choice((0.0, 10.0, 60.0))
        times = dice.sample(range(101), places)
        held = [
            PlacedAdapter(f"a{number}", dice.choice("xyzw"), dice.random() < 0.3, float(times[number]))
            for number in range(places)
        ]
        asker = dice.choice("xyzwv")
        found = evicted_for(asker, held, places, now, recent_s)
        assert (found.name if found else None) == naive(asker, held, places, now, recent_s), (asker, held, recent_s)
        if found is None:
            continue
        gone = next(one for one in held if one.name == found.name)
        assert not gone.in_use
        if gone.organization_id != asker and now - gone.used_at <= recent_s:
            left = sum(one.organization_id == gone.organization_id for one in held) - 1
            using = {one.organization_id for one in held if one.in_use or now - one.used_at <= recent_s} | {asker}
            assert left + 1 > places / len(using), "nobody's within their share"
