"""Who may go to an engine now: memory, promises, classes, shares; and what it is told who may not."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from contracts.desired_state import Canary, DesiredState, Model, Pool, Replica
from contracts.generation import Tier
from contracts.pooling import Task
from contracts.split import unit_of
from router.config import SloClass
from router.core.decisions import Refused
from router.core.events import Tick
from router.core.reasons import Reason
from router.metrics import RouterMetrics
from tests.router.core_driver import Core, granted, refused
from tests.router.fakes import fleet

ONE = fleet(replicas=("r1",), max_concurrency=100)


def test_memory_is_counted_from_the_last_poll_its_growth_and_the_grants_since() -> None:
    core = Core(ONE, slos=(), kv_reserve=0.0)
    core.placed("known", prompt_tokens=1_000, max_output_tokens=400)
    core.began("known")
    core.polled(running=1, used_tokens=1_000, capacity_tokens=4_000)
    replica = core.core.fleet.replicas["r1"]
    assert replica.headroom_tokens == 4_000 - 1_000 - 400
    core.placed("since", prompt_tokens=1_500, max_output_tokens=300)
    assert replica.headroom_tokens == 800
    assert core.ask("too big", prompt_tokens=700, max_output_tokens=200) == []
    assert core.placed("fits", prompt_tokens=600, max_output_tokens=200) == "r1"
    assert granted(core.over("since", 1_500, 10)) == ["too big"]
    (record,) = core.core.records.of("req_too big")
    assert record.waited_for == "no engine has memory left for the request"


def test_a_poll_corrects_what_was_assumed() -> None:
    core = Core(ONE, slos=(), kv_reserve=0.0)
    core.placed("first", prompt_tokens=1_000, max_output_tokens=1_000)
    core.began("first")
    core.polled(running=1, used_tokens=3_500, capacity_tokens=4_000)
    assert core.ask("waits", prompt_tokens=100, max_output_tokens=100) == []
    assert granted(core.polled(running=1, used_tokens=1_200, capacity_tokens=4_000)) == ["waits"]


def test_an_answer_is_counted_with_what_its_engine_promises_it() -> None:
    core = Core(ONE, slos=(), kv_reserve=0.0)
    for _ in range(40):
        core.served(10, 0.01, completion=20)
    report: dict[str, Any] = {"capacity_tokens": 10_000, "output_reserve": 0.5}
    core.polled(**report)
    replica = core.core.fleet.replicas["r1"]
    for number in range(4):
        assert core.placed(f"long {number}", prompt_tokens=100, max_output_tokens=4_000) == "r1"
        assert replica.headroom_tokens == 10_000 - (number + 1) * 2_100
    assert core.ask("waits here, not there", prompt_tokens=100, max_output_tokens=4_000) == []
    for number in range(4):
        core.began(f"long {number}")
    core.polled(running=4, used_tokens=400, promised_tokens=8_000, **report)
    assert replica.headroom_tokens is not None
    assert 1_600 <= replica.headroom_tokens < 1_700, "what it has promised is not free"
    assert granted(core.over("long 0", 100, 20)) == ["waits here, not there"]


def test_what_was_promised_to_requests_of_others_is_not_free() -> None:
    core = Core(ONE, slos=(), kv_reserve=0.0)
    core.polled(running=3, used_tokens=1_000, promised_tokens=6_000, capacity_tokens=8_000, output_reserve=1.0)
    assert core.core.fleet.replicas["r1"].headroom_tokens == 1_000


def test_answers_are_expected_as_long_as_those_of_their_tenant_and_never_beyond_the_maximum() -> None:
    core = Core(ONE, slos=())
    for _ in range(40):
        core.served(10, 0.01, completion=50, organization_id="short")
    for _ in range(40):
        core.served(10, 0.01, completion=900, organization_id="long", max_output_tokens=2_000)
    outputs = core.core.fleet.pools["pool"].outputs
    assert 50 <= outputs.expected("m", "short", 2_000) <= 70
    assert 900 <= outputs.expected("m", "long", 2_000) <= 1_220
    assert outputs.expected("m", "long", 300) == 300
    assert outputs.expected("m", "new", 2_000) >= 900, "a stranger is like the model"
    assert outputs.expected("other", "new", 2_000) == 2_000


def test_an_engine_that_ran_out_of_memory_is_given_less() -> None:
    core = Core(ONE, slos=())
    for _ in range(30):
        core.served(10, 0.01, completion=50)
    pool = core.core.fleet.pools["pool"]
    core.polled(capacity_tokens=10_000, retracted=1)
    core.polled(capacity_tokens=10_000, retracted=3)
    raised = pool.cache_reports.safety
    assert raised > 1.4
    for _ in range(100):
        core.served(10, 0.01, completion=50)
    assert 1.0 <= pool.cache_reports.safety < raised


def test_retractions_that_are_told_as_they_come_are_added_up() -> None:
    core = Core(ONE, slos=())
    pool = core.core.fleet.pools["pool"]
    for since in (2, 0, 3):
        core.polled(capacity_tokens=10_000, retracted_since=since)
    assert pool.cache_reports.retractions == 5
    core.polled(capacity_tokens=10_000)
    assert pool.cache_reports.retractions == 5


def test_the_memory_in_use_is_told_of_each_engine_that_reports_it() -> None:
    core = Core(ONE, slos=())
    metrics = RouterMetrics(core.core).registry
    place = {"pool": "pool", "replica": "r1"}
    assert metrics.get_sample_value("slipstream_router_kv_used_ratio", place) is None
    core.polled(used_tokens=9_700, capacity_tokens=10_000)
    assert metrics.get_sample_value("slipstream_router_kv_used_ratio", place) == 0.97
    core.polled(running=1)
    assert metrics.get_sample_value("slipstream_router_kv_used_ratio", place) is None, "it no longer reports any"


def test_an_idle_engine_takes_what_it_may_not_have_room_for() -> None:
    core = Core(ONE)
    core.polled(used_tokens=0, capacity_tokens=500)
    assert core.placed(prompt_tokens=1_000, max_output_tokens=1_000) == "r1", "the engine itself says no, or copes"


def test_contexts_that_are_too_short_are_passed_over() -> None:
    replicas = (Replica("short", "http://s", context_tokens=1_000), Replica("long", "http://l"))
    state = DesiredState(1, (Model("m", Tier.CHAT, "p", 8_192),), (Pool("p", "fake", replicas),))
    core = Core(state)
    assert {core.placed(prompt_tokens=900, max_output_tokens=200) for _ in range(4)} == {"long"}
    assert core.placed(prompt_tokens=100, max_output_tokens=100) == "short"
    assert refused(core.ask(prompt_tokens=900, max_output_tokens=200, excluded_replicas=("long",)))


def test_prompts_wait_when_an_engine_would_begin_too_late_and_go_when_it_has_caught_up() -> None:
    core = Core(ONE, slos=(SloClass(Tier.CHAT, 4_096, 0.7, 0.0),))
    core.learn(0.0001)  # a thousand tokens in 0.1 s
    for number in range(6):
        core.placed(f"l{number}", prompt_tokens=1_000)
    assert core.ask("late", prompt_tokens=1_000) == [], "0.7 s are promised, 0.6 s of work are in front of it"
    core.now += 0.05
    assert granted(core.began("l0", 0.05)) == ["late"]


def test_what_an_engine_has_done_of_a_prompt_is_no_longer_in_front() -> None:
    core = Core(ONE, slos=(SloClass(Tier.CHAT, 4_096, 0.7, 0.0), SloClass(Tier.CHAT, 1 << 31, 15.0, 0.0)))
    core.learn(0.0001)
    core.placed("long", prompt_tokens=20_000)  # two seconds
    assert core.ask("early", prompt_tokens=1_000) == []
    core.now += 1.6
    assert granted(core.ask("late", prompt_tokens=1_000)) == ["late"]


def test_before_anything_is_known_engines_are_given_little_and_more_with_every_answer() -> None:
    core = Core(ONE)
    assert core.placed("first", prompt_tokens=30_000) == "r1", "an idle engine takes anything"
    assert core.ask("second", prompt_tokens=3_000) == core.ask("third", prompt_tokens=4_000) == []
    assert granted(core.began("first", 0.3)) == ["second", "third"], "one answer seen: twice as much"
    assert core.ask("fourth", prompt_tokens=3_000) == []


def test_a_crowd_is_not_taken_for_slow_engines() -> None:
    core = Core(ONE)
    latency_model = core.core.fleet.pools["pool"].latency_model
    for _ in range(40):
        latency_model.saw_tokens(1.0, 100, 1, 0.0)
    for _ in range(400):
        latency_model.saw_tokens(10.0, 100, 1, 9.2)
    assert latency_model.token_s(1) == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize(("tenant", "held_back"), [("neighbour", False), ("greedy", True)])
def test_one_tenants_long_prompt_keeps_nobody_else_from_the_engines(tenant: str, held_back: bool) -> None:
    core = Core(fleet(replicas=("r1", "r2", "r3")))
    core.learn(0.0001, ("r1", "r2", "r3"))
    for number in range(3):
        core.placed(f"l{number}", prompt_tokens=1_000, organization_id="neighbour")
        core.began(f"l{number}", 0.1)
    core.placed("long", prompt_tokens=100_000, organization_id="greedy")  # ten seconds: three times what streams bear
    decisions = core.ask("next", prompt_tokens=5_000, organization_id=tenant)
    assert granted(decisions) == ([] if held_back else ["next"])


def test_an_idle_engine_takes_a_prompt_whatever_the_pool_has_been_given() -> None:
    core = Core(fleet(replicas=("r1", "r2", "r3")))
    core.learn(0.0001, ("r1", "r2", "r3"))
    core.placed("long", prompt_tokens=100_000)
    where = core.placed("another", prompt_tokens=5_000)
    assert where != core.placed("third", prompt_tokens=5_000), "not behind the second, though that would do"
    (decision,) = core.ask("fourth", prompt_tokens=5_000)
    assert isinstance(decision, Refused), "now every engine has somebody"


def test_who_cannot_be_in_time_any_more_goes_after_who_can() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    core.learn(0.0001)
    core.placed("running", prompt_tokens=1_000)
    core.ask("old", prompt_tokens=1_000)
    core.now += 2.0
    core.ask("new", prompt_tokens=1_000)
    assert granted(core.over("running")) == ["new"]
    assert granted(core.over("new")) == ["old"]


def test_a_higher_class_goes_first_and_the_lowest_is_shed_first() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), queue_length=2)
    core.placed("running")
    assert core.ask("low", priority=-1) == core.ask("middle") == []
    (shed,) = refused(core.ask("high", priority=1))
    assert (shed.lease_id, shed.code) == ("low", "overloaded")
    assert shed.retry_after_s
    (shed,) = refused(core.ask("low again", priority=-1))
    assert shed.lease_id == "low again"
    assert granted(core.over("running")) == ["high"]
    assert granted(core.over("high")) == ["middle"]


def test_a_full_queue_sheds_the_tenant_that_fills_it() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), queue_length=3)
    core.placed("running", organization_id="flood", prompt_tokens=1_000)
    for number in range(3):
        core.ask(f"flood-{number}", organization_id="flood")
    (shed,) = refused(core.ask("other", organization_id="quiet"))
    assert shed.lease_id == "flood-2"
    turns = [*granted(core.over("running", 1_000)), *granted(core.over("flood-0"))]
    assert "other" in turns


def test_who_would_wait_in_vain_is_told_at_once_and_when_to_come_back() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), slos=())
    core.placed("l0")
    for number in range(1, 30):
        core.ask(f"l{number}", deadline_s=90.0)
    for number in range(20):
        core.now += 2.0
        assert granted(core.over(f"l{number}")) == [f"l{number + 1}"]
    (shed,) = refused(core.ask("hurried", deadline_s=5.0))
    assert "its turn would come in" in shed.reason
    assert shed.retry_after_s == pytest.approx(2.0 * 10, rel=0.1), "nine wait, two seconds each"
    (another,) = refused(core.ask("also hurried", deadline_s=5.0))
    assert another.retry_after_s is not None
    assert shed.retry_after_s is not None
    assert another.retry_after_s > shed.retry_after_s, "not everyone at once"
    assert core.ask("patient", deadline_s=60.0) == []


@pytest.mark.parametrize("task", [Task.EMBEDDING, Task.RERANK])
def test_an_engine_that_makes_vectors_or_scores_is_filled_to_its_limit(task: Task) -> None:
    state = fleet(replicas=("r1",), max_concurrency=4)
    core = Core(msgspec.structs.replace(state, models=(msgspec.structs.replace(state.models[0], task=task),)))
    for number in range(20):
        core.placed(f"before-{number}", prompt_tokens=3_000, max_output_tokens=0)
        core.now += 0.2
        core.over(f"before-{number}", 3_000, 0)
    for number in range(4):
        core.placed(f"lease-{number}", prompt_tokens=3_000, max_output_tokens=0)
    assert core.ask("one more", prompt_tokens=3_000, max_output_tokens=0) == []


def test_who_would_wait_in_vain_takes_nobodys_place_of_a_lower_class() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), slos=(), queue_length=30)
    core.placed("l0", priority=1)
    for number in range(1, 30):
        core.ask(f"l{number}", priority=1, deadline_s=90.0)
    for number in range(20):
        core.now += 2.0
        core.over(f"l{number}")
    assert core.ask("patient", deadline_s=90.0) == []
    assert [shed.lease_id for shed in refused(core.ask("hurried", priority=1, deadline_s=5.0))] == ["hurried"]
    for number in range(30, 50):
        core.ask(f"l{number}", priority=1, deadline_s=90.0)
    assert [shed.lease_id for shed in refused(core.ask("too many", priority=1, deadline_s=5.0))] == ["too many"]
    assert [shed.lease_id for shed in refused(core.ask("l50", priority=1, deadline_s=90.0))] == ["patient"]


def test_the_part_refused_is_known_by_tier() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    core.placed()
    for _ in range(3):
        core.ask(deadline_s=0.0)
    sheds = core.core.placer.sheds
    assert (sheds.asks["chat"], sheds.refusals["chat"], sheds.ratio["chat"]) == (4, 3, 0.75)


def canary(share: float, version: int) -> DesiredState:
    pools = (
        Pool("p", "fake", (Replica("old", "http://o"),), 10_000),
        Pool("c", "fake", (Replica("new", "http://n"),), 10_000),
    )
    model = Model("m", Tier.CHAT, "p", 8_192, canary=Canary("c", share, engine_model="m-new"))
    return DesiredState(version, (model,), pools)


def test_a_canary_takes_its_share_of_sessions_and_keeps_them_as_it_grows() -> None:
    core = Core(canary(0.1, 1), slos=())
    sessions = [f"session-{number}" for number in range(300)]

    def of_canary() -> set[str]:
        return {name for name in sessions if core.served(10, 0.01, session_id=name) == "new"}

    first = of_canary()
    assert 10 <= len(first) <= 50
    assert of_canary() == first
    core.publish(canary(0.3, 2))
    grown = of_canary()
    assert first < grown
    assert 60 <= len(grown) <= 120


def release(share: float, version: int, control_pool: str = "k") -> DesiredState:
    state = canary(share, version)
    split = Canary("c", share, engine_model="m-new", control=True, control_pool=control_pool, release="r")
    model = msgspec.structs.replace(state.models[0], canary=split)
    fresh = Pool("k", "fake", (Replica("fresh", "http://k"),), 10_000)
    return DesiredState(version, (model,), (*state.pools, fresh))


def test_the_control_arm_has_as_many_sessions_as_the_candidate_and_neither_loses_one_as_they_grow() -> None:
    core = Core(release(0.1, 1), slos=())
    units = [unit_of("o", f"session-{number}") for number in range(400)]

    def sides() -> dict[str, set[int]]:
        found: dict[str, set[int]] = {"old": set(), "new": set(), "fresh": set()}
        for unit in units:
            found[core.served(10, 0.01, unit=unit)].add(unit)
        return found

    first = sides()
    assert 25 <= len(first["new"]) <= 55
    assert 25 <= len(first["fresh"]) <= 55
    core.publish(release(0.3, 2))
    grown = sides()
    assert first["new"] < grown["new"]
    assert first["fresh"] < grown["fresh"]
    core.publish(release(0.3, 3, control_pool=""))
    assert sides() == {"old": grown["old"] | grown["fresh"], "new": grown["new"], "fresh": set()}


def test_a_gateway_that_knows_of_no_split_takes_no_part_in_a_releases() -> None:
    core = Core(release(1.0, 1), slos=())
    assert core.placed(session_id="s") == "old"
    assert core.placed(session_id="s", unit=unit_of("o", "s")) == "new"


def test_every_reason_is_one_label_and_one_sentence() -> None:
    """Values are labels of a metric: few, plain words; aliases would make two reasons one."""
    assert all(re.fullmatch(r"[a-z_]+", reason.value) and reason.sentence for reason in Reason)
    assert len({reason.sentence for reason in Reason}) == len(Reason.__members__) == len(Reason)


def test_refusals_are_counted_by_what_kept_the_ask() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), slos=(), queue_length=1)
    metrics = RouterMetrics(core.core)
    core.placed("l1")
    core.ask("waits", deadline_s=1.0)
    found = [*core.ask("full", deadline_s=1.0), *core.ask("nowhere", model="none")]
    core.now += 1.0
    found += core.do(Tick())
    for decision in found:
        metrics.decided(decision)
    told = generate_latest(metrics.registry).decode()
    for code, reason in (
        ("overloaded", "queue_full"),
        ("model_not_found", "unknown_model"),
        ("overloaded", "places_taken"),
    ):
        assert f'slipstream_router_sheds_total{{code="{code}",reason="{reason}"}} 1.0' in told
    assert "no slot came free within 1 s" in refused(found)[-1].reason
