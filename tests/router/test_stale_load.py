"""A load report that no longer comes is not taken for the present, whatever it said last."""

from __future__ import annotations

import logging

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.drivers.base import Load
from router.control.messages import replica
from router.core.decisions import Granted
from router.core.events import KvBatch, ReplicaPolled
from router.core.replica import (
    MAX_ANSWERS_WITHOUT_KV,
    NO_KV_EVENTS,
    NO_LOAD_REPORT,
    STALE_MISSES,
    UNCHANGED_REPORT,
    UNCHANGED_S,
)
from router.lost_reports import LostReports
from tests.examples import examples
from tests.router.core_driver import Core
from tests.router.fakes import fleet

FULL = {"running": 4, "waiting": 40, "used_tokens": 1_000, "capacity_tokens": 1_000, "max_running": 4}


def missed(core: Core, times: int = STALE_MISSES) -> None:
    for _ in range(times):
        core.do(ReplicaPolled("r1", True, load_failed=True))


def test_an_engine_that_was_full_when_its_reports_ended_is_used_again() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", **FULL)
    assert not [each for each in core.ask("waits") if isinstance(each, Granted)]

    missed(core, STALE_MISSES - 1)
    assert core.core.fleet.replicas["r1"].leases == 0
    missed(core, 1)

    engine = core.core.fleet.replicas["r1"]
    assert (engine.leases, engine.foreign, engine.load_is_stale) == (1, 0, True)
    assert engine.kv_used_ratio is None
    assert replica(core.core, engine).detail == NO_LOAD_REPORT


def test_an_engine_that_was_empty_when_its_reports_ended_is_given_no_more_than_it_holds() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1_000))
    core.polled("r1", capacity_tokens=100)
    for number in range(3):
        core.placed(f"lease-a-{number}")  # 20 tokens each, with its answer
    core.polled("r1", capacity_tokens=100, running=3, used_tokens=0)

    missed(core)

    headroom = core.core.fleet.replicas["r1"].headroom_tokens
    assert headroom == 100 - 3 * 20
    core.began("lease-a-0")
    core.over("lease-a-0")
    assert core.core.fleet.replicas["r1"].headroom_tokens == 100 - 2 * 20


def test_reports_that_come_again_count_again() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", capacity_tokens=100)
    missed(core)
    core.polled("r1", capacity_tokens=100, used_tokens=30)

    engine = core.core.fleet.replicas["r1"]
    assert (engine.load_is_stale, engine.headroom_tokens, engine.kv_used_ratio) == (False, 70, 0.3)
    assert replica(core.core, engine).detail == ""


def test_an_engine_with_nothing_new_to_report_computes_nothing() -> None:
    """TensorRT-LLM reports a step once: an idle engine has none."""
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", capacity_tokens=100, used_tokens=90, running=9)
    engine = core.core.fleet.replicas["r1"]
    for _ in range(STALE_MISSES - 1):
        core.do(ReplicaPolled("r1", True))
    assert engine.headroom_tokens == 10
    for _ in range(10 * STALE_MISSES):
        core.do(ReplicaPolled("r1", True))
    assert (engine.load_is_stale, engine.headroom_tokens, engine.foreign) == (False, 100, 0)


def test_an_engine_that_reports_nothing_while_our_requests_run_no_longer_reports() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", capacity_tokens=100)
    core.placed("l1")
    core.began("l1")
    for _ in range(STALE_MISSES):
        core.do(ReplicaPolled("r1", True))
    engine = core.core.fleet.replicas["r1"]
    assert (engine.load_is_stale, engine.headroom_tokens) == (True, 100 - 20)


@pytest.mark.parametrize("full", [True, False])
def test_a_report_that_does_not_change_while_requests_run_is_given_up(full: bool) -> None:
    core = Core(fleet(replicas=("r1",)))
    engine = core.core.fleet.replicas["r1"]
    said = FULL if full else {"capacity_tokens": 1_000}
    core.polled("r1", **said)
    if full:
        assert not [each for each in core.ask("waits", deadline_s=1e3) if isinstance(each, Granted)]
    else:
        core.placed("waits")
        core.began("waits")
    for _ in range(int(UNCHANGED_S)):
        assert not engine.load_is_stale
        core.now += 1.0
        core.polled("r1", **said)
    assert (engine.load_is_stale, engine.leases, engine.foreign) == (True, 1, 0)
    assert replica(core.core, engine).detail == UNCHANGED_REPORT
    assert engine.headroom_tokens == 1_000 - 20, "by our own lease"
    core.polled("r1", capacity_tokens=1_000, used_tokens=17, running=1)
    assert (engine.load_is_stale, engine.lost) == (False, ())


def test_an_idle_engine_may_report_the_same_for_ever() -> None:
    core = Core(fleet(replicas=("r1",)))
    for _ in range(3):
        core.now += UNCHANGED_S
        core.polled("r1", capacity_tokens=100)
    assert not core.core.fleet.replicas["r1"].load_is_stale


def test_reports_of_an_engine_that_this_router_cannot_ask_grow_old() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", **FULL)
    core.ask("waits")
    for _ in range(STALE_MISSES):
        core.do(ReplicaPolled("r1", False, asked=False))
    engine = core.core.fleet.replicas["r1"]
    assert (engine.health.value, engine.load_is_stale, engine.leases) == ("healthy", True, 1)


def test_what_another_engine_told_under_the_same_name_is_forgotten() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", **FULL)
    state = fleet(2, replicas=("r1",))
    (pool,) = state.pools
    moved = msgspec.structs.replace(pool.replicas[0], url="http://127.0.0.1/elsewhere")
    core.publish(msgspec.structs.replace(state, pools=(msgspec.structs.replace(pool, replicas=(moved,)),)))
    assert core.core.fleet.replicas["r1"].load == Load()
    assert core.placed("l1") == "r1"


def test_more_in_use_than_there_is_is_no_debt() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.polled("r1", capacity_tokens=100, used_tokens=10**9)
    assert core.core.fleet.replicas["r1"].headroom_tokens == 0
    assert core.placed("l1") == "r1", "one that runs nothing of anybody's takes one"


def test_a_share_too_small_to_divide_by_is_survived() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.learn(0.001)
    core.polled("r1", share_behind=5e-324, step_tokens=1)
    core.placed("l1", prompt_tokens=100)
    core.ask("l2", prompt_tokens=100)


@pytest.mark.parametrize(
    ("prompt", "completion", "cached"), [(10, 5, 2**32 - 1), (2**32 - 1, 5, 0), (10, 2**32 - 1, 0), (0, 0, 10)]
)
def test_counts_that_cannot_be_change_nobodys_turn(prompt: int, completion: int, cached: int) -> None:
    core = Core(fleet(replicas=("r1",)))
    core.placed("l1", organization_id="one")
    core.began("l1", 0.1, 2**32 - 1)
    core.over("l1", prompt, completion, cached)
    (pool,) = core.core.fleet.pools.values()
    context = 2_048  # of the model
    assert 0 <= pool.queue.tenant("one").counter <= context + 2 * 10
    assert pool.outputs.expected("m", "one", 10) <= 10


def test_kv_events_that_stop_are_told_of() -> None:
    """What the engine is thought to hold goes on by its cached tokens, as of one without events."""
    state = fleet(replicas=("r1",))
    (pool,) = state.pools
    telling = msgspec.structs.replace(pool.replicas[0], kv_events="tcp://127.0.0.1:1")
    core = Core(msgspec.structs.replace(state, pools=(msgspec.structs.replace(pool, replicas=(telling,)),)))
    engine = core.core.fleet.replicas["r1"]
    for number in range(2 * MAX_ANSWERS_WITHOUT_KV):
        core.served(20 + number, 0.1)  # fills no page: nothing to tell of
    for number in range(MAX_ANSWERS_WITHOUT_KV):
        assert not engine.lost
        core.served(500 + number, 0.1)
    assert replica(core.core, engine).detail == NO_KV_EVENTS
    core.do(KvBatch("r1", 0, b"torn", False))
    assert engine.kv_is_silent, "what cannot be read tells nothing"
    core.do(KvBatch("r1", 0, msgspec.msgpack.encode([1.0, [["AllBlocksCleared"]]]), False))
    assert not engine.lost


def test_what_is_lost_is_logged_once_and_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    core, lost = Core(fleet(replicas=("r1",))), LostReports()
    engine = core.core.fleet.replicas["r1"]
    with caplog.at_level(logging.INFO, "router.lost_reports"):
        for seconds in (0.0, UNCHANGED_S, 1.0, 1.0):
            core.now += seconds
            core.polled("r1", **FULL)
            lost.look(engine, failed=False)
        core.polled("r1", capacity_tokens=1_000)
        lost.look(engine, failed=False)
        missed(core)  # the poller says why
        lost.look(engine, failed=True)
    said = [record.message for record in caplog.records]
    assert said == [f"replica r1: {UNCHANGED_REPORT}", f"replica r1: resolved: {UNCHANGED_REPORT}"]


@examples(nightly=200)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200), st.booleans()), max_size=5),
    st.integers(0, 3_000),
    st.integers(0, 3_000),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_what_the_engine_has_promised_our_leases_is_not_counted_twice(
    leases: list[tuple[int, int, bool]], used: int, promised: int, reserve: float
) -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100))
    core.polled("r1", capacity_tokens=100_000, output_reserve=reserve)
    ours = 0
    for number, (prompt, output, began) in enumerate(leases):
        core.placed(f"l{number}", prompt_tokens=prompt, max_output_tokens=output)
        if began:  # the report has its prompt among the tokens in use
            core.began(f"l{number}")
        ours += output if began else prompt + output
    core.polled(
        "r1", capacity_tokens=100_000, used_tokens=used, promised_tokens=promised, output_reserve=reserve, running=5
    )
    assert core.core.fleet.replicas["r1"].headroom_tokens == 100_000 - used - max(promised, ours)
