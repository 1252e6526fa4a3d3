"""Prefill/decode pairs: one lease on two engines, both given back whatever becomes of it."""

from __future__ import annotations

import random

import msgspec
import pytest

from contracts.desired_state import DesiredState, Model, Pool, Replica
from contracts.errors import ConfigError
from contracts.generation import Tier
from contracts.lease import HeldLease, LeaseEnd, prefill_id
from contracts.usage import Finish, Usage
from router.book import LeaseBook
from router.core.decisions import Granted
from router.core.events import Cancel, FirstToken, GatewayConnected, GatewayDisconnected, Release
from router.protocol import messages
from tests.router.core_driver import Core, granted, refused
from tests.router.fakes import ask


def state(prefills: int = 2, decodes: int = 2, most: int = 4) -> DesiredState:
    prefill = Pool(
        "p", "sglang", tuple(Replica(f"p{n}", f"http://p{n}", bootstrap_port=8_998) for n in range(prefills)), most,
        role="prefill",
    )  # fmt: skip
    decode = Pool(
        "d", "sglang", tuple(Replica(f"d{n}", f"http://d{n}") for n in range(decodes)), most, role="decode",
        prefill_pool="p",
    )  # fmt: skip
    return DesiredState(1, (Model("m", Tier.CHAT, "d", 4_096),), (prefill, decode))


def leases(core: Core) -> dict[str, int]:
    return {name: replica.leases for name, replica in core.core.fleet.replicas.items()}


def test_a_grant_names_both_engines_and_both_are_counted_until_each_has_done_its_part() -> None:
    core = Core(state(1, 1))
    (decision,) = core.ask("one", model="m")
    assert isinstance(decision, Granted)
    assert decision.lease.prefill is not None
    assert (decision.lease.engine.replica_id, decision.lease.prefill.replica_id) == ("d0", "p0")
    assert decision.lease.prefill.bootstrap_port == 8_998
    assert leases(core) == {"p0": 1, "d0": 1}
    core.now += 0.1
    core.began("one", 0.1)
    assert leases(core) == {"p0": 0, "d0": 1}
    core.over("one")
    assert leases(core) == {"p0": 0, "d0": 0}


def test_who_waits_for_a_prefill_engine_is_served_when_one_has_done_its_part() -> None:
    core = Core(state(1, 2, most=1))
    core.placed("one", model="m")
    assert core.ask("two", model="m") == []
    assert granted(core.began("one", 0.1)) == ["two"]


def test_background_work_gets_the_idle_decode_engine_that_it_names_with_any_idle_prefill_engine() -> None:
    core = Core(state(2, 2))
    customers, (background,) = core.ask("one", model="m"), core.ask("copy", model="m", idle_replica="d1", pool="d")
    assert isinstance(customers[0], Granted)
    assert isinstance(background, Granted)
    assert background.lease.engine.replica_id == "d1"
    assert {each.lease.prefill and each.lease.prefill.replica_id for each in (customers[0], background)} == {"p0", "p1"}
    core.over("copy")
    core.placed("two", model="m")
    assert refused(core.ask("again", model="m", idle_replica="d1", pool="d")), "no prefill engine is idle"


def test_one_decode_engine_gets_the_long_prompts_that_several_prefill_engines_compute_at_once() -> None:
    core = Core(state(4, 1))
    for number in range(20):
        core.placed(f"before-{number}", model="m", prompt_tokens=3_000)
        core.now += 0.3
        core.began(f"before-{number}", 0.3)
        core.over(f"before-{number}", 3_000)
    for number in range(4):
        core.placed(f"lease-{number}", model="m", prompt_tokens=3_000)
    assert leases(core) == {"p0": 1, "p1": 1, "p2": 1, "p3": 1, "d0": 4}


def test_without_a_healthy_prefill_engine_the_request_is_refused() -> None:
    core = Core(state(0, 1))
    assert [one.code for one in refused(core.ask("one", model="m"))] == ["no_engine_available"]


def test_a_fault_of_the_prefill_engine_is_counted_against_it_alone() -> None:
    core = Core(state(1, 1))
    core.placed("one", model="m", organization_id="acme")
    core.do(Release(1, LeaseEnd("one", Finish.ENGINE_ERROR, prefill_fault=True)))
    replicas = core.core.fleet.replicas
    assert replicas["p0"].accusers == {"acme"}
    assert not replicas["d0"].accusers
    assert leases(core) == {"p0": 0, "d0": 0}


def test_the_next_attempt_gets_another_prefill_engine() -> None:
    core = Core(state(2, 1))
    (first,) = core.ask("one", model="m")
    assert isinstance(first, Granted)
    assert first.lease.prefill is not None
    failed = first.lease.prefill.replica_id
    (second,) = core.ask("two", model="m", excluded_replicas=(failed,))
    assert isinstance(second, Granted)
    assert second.lease.prefill is not None
    assert second.lease.prefill.replica_id != failed


def test_a_hello_names_both_places_and_a_new_router_counts_both() -> None:
    book = LeaseBook(8)
    core = Core(state(1, 1))
    (decision,) = core.ask("one", model="m")
    assert isinstance(decision, Granted)
    book.asked(ask("one"), 0.0)
    book.granted(messages.lease_of(messages.grant(decision.lease).grant))
    hello = book.hello("gateway", "epoch").hello
    assert [(one.lease_id, one.replica_id) for one in hello.leases] == [("one", "d0"), (prefill_id("one"), "p0")]
    fresh = Core(state(1, 1))
    held = tuple(HeldLease(one.lease_id, one.replica_id, 10, 10) for one in hello.leases)
    fresh.do(GatewayConnected(2, "gateway", "epoch", held))
    assert leases(fresh) == {"p0": 1, "d0": 1}
    fresh.do(FirstToken(2, "one", 0.1, 0))
    assert leases(fresh) == {"p0": 0, "d0": 1}
    fresh.do(Release(2, LeaseEnd("one", Finish.COMPLETE, Usage(10, 5))))
    assert leases(fresh) == {"p0": 0, "d0": 0}
    book.began("one", 0.1, 0)
    assert [one.lease_id for one in book.hello("gateway", "epoch").hello.leases] == ["one"]


@pytest.mark.parametrize("seed", range(3))
def test_the_books_are_zero_after_random_pairs_and_kills(seed: int) -> None:
    chance = random.Random(seed)
    core = Core(state(2, 3, most=2))
    live: list[str] = []
    for number in range(200):
        core.now += chance.random() * 0.05
        action = chance.random()
        if action < 0.4 or not live:
            live += granted(core.ask(f"lease-{number}", model="m", prompt_tokens=chance.randrange(1, 500)))
            continue
        lease_id = live[chance.randrange(len(live))]
        if action < 0.6:
            live += granted(core.began(lease_id, 0.01))
            continue
        live.remove(lease_id)
        if action < 0.7:
            live += granted(core.do(Cancel(1, lease_id)))
        elif action < 0.85:
            end = LeaseEnd(lease_id, Finish.ENGINE_ERROR, prefill_fault=action < 0.78, engine_fault=action >= 0.78)
            live += granted(core.do(Release(1, end)))
        else:
            live += granted(core.over(lease_id))
    core.do(GatewayDisconnected(1))
    core.do(GatewayConnected(2, "gateway", "epoch"))  # it names nothing: all are over
    assert set(leases(core).values()) == {0}
    assert all(pool.leases == 0 for pool in core.core.fleet.pools.values())


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ((Pool("d", "sglang", role="decode"),), "name the pool that computes its prompts"),
        ((Pool("d", "sglang", role="decode", prefill_pool="p"),), "no pool named 'p'"),
        (
            (Pool("d", "sglang", role="decode", prefill_pool="u"), Pool("u", "sglang")),
            "does not have the role 'prefill'",
        ),
        ((Pool("d", "sglang"), Pool("p", "vllm", role="prefill")), "needs driver sglang, not 'vllm'"),
        ((Pool("d", "sglang", prefill_pool="p"),), "only a decode pool has a prefill pool"),
        ((Pool("d", "sglang", role="decode", prefill_pool="p", max_adapters=2),), "pairs do not support adapters"),
        ((Pool("d", "sglang", role="prefill"),), "name its decode pool"),
        ((Pool("d", "sglang", (Replica("r", "http://r", bootstrap_port=1),)),), "0 for others"),
        (
            (
                Pool("p", "sglang", role="prefill"),
                Pool("d", "sglang", role="decode", prefill_pool="p"),
                Pool("e", "sglang", role="decode", prefill_pool="p"),
            ),
            "already computes the prompts of 'd'",
        ),
    ],
)
def test_pools_that_are_no_pair_are_refused_by_field(pools: tuple[Pool, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DesiredState(1, (Model("m", Tier.CHAT, "d", 4_096),), pools).check()


def test_a_prefill_engine_is_not_blamed_for_requests_of_the_one_that_it_replaced() -> None:
    core = Core(state(1, 1))
    core.placed("one", model="m")
    moved = msgspec.json.encode(msgspec.structs.replace(state(1, 1), version=2)).replace(b"http://p0", b"http://moved")
    core.publish(msgspec.json.decode(moved, type=DesiredState))
    core.do(Release(1, LeaseEnd("one", Finish.ENGINE_ERROR, Usage(), prefill_fault=True)))
    assert not core.core.fleet.replicas["p0"].accusers
