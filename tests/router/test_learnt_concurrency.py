"""How many requests a replica is given: what it reports, what its pool says, else what is learnt of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from contracts.desired_state import DesiredState, Pool
from contracts.lease import LeaseEnd
from contracts.usage import Finish
from router.config import ConcurrencyConfig, RouterConfig
from router.core.events import Release, StatePublished
from tests.router.core_driver import Core, granted
from tests.router.fakes import fleet, queued


def core(max_concurrency: int = 0, **settings: object) -> Core:
    """One replica that reports nothing, and no promises."""
    state = fleet(replicas=("r1",), max_concurrency=max_concurrency)
    return Core(state, slos=(), concurrency=ConcurrencyConfig(**settings))  # type: ignore[arg-type]


def limit(one: Core) -> tuple[int, str]:
    replica = one.core.fleet.replicas["r1"]
    return replica.max_concurrency, replica.limited_by


def fill(one: Core, requests: int) -> list[str]:
    """Ask so often; the leases granted."""
    return [lease for number in range(requests) for lease in granted(one.ask(f"l{number}"))]


def refuse(one: Core, lease_id: str) -> None:
    one.do(Release(1, LeaseEnd(lease_id, Finish.ENGINE_ERROR, engine_full=True)))


def test_whoever_waits_is_given_the_places_that_first_tokens_open() -> None:
    one = core(initial=4)
    assert len(fill(one, 10)) == 4
    for number in range(9):
        one.now += 0.05
        one.began(f"l{number}", 0.01)
    assert queued(one.core) == 0
    assert limit(one) == (13, "measured: first tokens came no later than usual")


def test_long_prompts_do_not_wait_for_each_other_before_an_upstream_of_which_nothing_is_said() -> None:
    one = Core(fleet(replicas=("r1",), max_concurrency=0))
    for number in range(60):
        assert one.placed(f"l{number}", prompt_tokens=1_500) == "r1"


def test_a_refusal_takes_the_limit_below_what_was_refused() -> None:
    one = core(initial=20)
    fill(one, 12)
    refuse(one, "l11")
    assert limit(one) == (11, "measured: the upstream refused a request because it was full")
    assert granted(one.ask("next")) == []


def test_answers_without_a_first_token_raise_a_limit_again() -> None:
    """Vectors and scores come whole."""
    one = core(initial=20)
    live = fill(one, 3)
    refuse(one, live.pop())
    assert limit(one)[0] == 2
    for number in range(600):
        one.now += 0.05
        one.over(live.pop(0), 10, 0)
        live += granted(one.ask(f"next-{number}", max_output_tokens=0))
    assert limit(one) == (3, "measured: higher concurrency raised throughput")


def test_what_an_engine_reports_to_run_goes_before_what_is_learnt() -> None:
    one = core(initial=4)
    one.polled(max_running=9)
    assert limit(one) == (9, "reported by the engine")
    assert len(fill(one, 12)) == 9


def test_an_engine_that_reports_its_memory_is_limited_by_that() -> None:
    one = core(initial=4, max_limit=500)
    one.polled(capacity_tokens=300)
    assert limit(one) == (500, "set by router.concurrency")
    assert 0 < len(fill(one, 40)) < 40


def test_a_pools_own_figure_is_where_it_begins_and_ends() -> None:
    one = core(max_concurrency=6)
    assert len(fill(one, 10)) == 6
    for number in range(6):
        one.began(f"l{number}", 0.2)
    assert limit(one)[0] == 6
    one.do(StatePublished(fleet(2, replicas=("r1",), max_concurrency=8)))
    assert limit(one) == (8, "measured: the pool's max_concurrency was set")


def test_nothing_is_learnt_where_that_is_off() -> None:
    one = core(learn=False, initial=3)
    assert len(fill(one, 5)) == 3
    one.began("l0", 0.2)
    assert limit(one) == (3, "set by router.concurrency")


def test_another_engine_under_the_name_is_learnt_anew() -> None:
    one = core(initial=20)
    fill(one, 12)
    refuse(one, "l11")
    state = fleet(2, replicas=("r1",), max_concurrency=0)
    (pool,) = state.pools
    moved = msgspec.structs.replace(pool.replicas[0], url="http://127.0.0.1/another")
    one.do(StatePublished(DesiredState(2, state.models, (Pool("pool", "fake", (moved,)),))))
    assert limit(one) == (20, "measured: no request has shown its limit yet")


def test_a_tenants_requests_are_served_as_they_came_even_when_all_are_late() -> None:
    one = Core(
        fleet(replicas=("r1",), max_concurrency=0), concurrency=ConcurrencyConfig(learn=True, initial=1, max_limit=1)
    )
    one.learn(0.0001)
    fill(one, 1)
    order = []
    for number in range(1, 6):
        # the long ones would have to begin first to be in time, and promises grow with length
        assert one.ask(f"l{number}", prompt_tokens=10 if number % 2 else 1_500) == []
        one.now += 0.5
    running = "l0"
    while running:
        one.now += 0.01
        one.began(running, 0.01)
        (*_, running) = [*[""], *granted(one.over(running))]
        order += [running] if running else []
    assert order == [f"l{number}" for number in range(1, 6)]


def test_the_explanation_says_what_the_limit_was_and_why() -> None:
    one = core(initial=4)
    fill(one, 1)
    ((record,),) = [one.core.records.of("req_l0")]
    (candidate,) = record.candidates
    assert (candidate.max_concurrency, candidate.limited_by) == (
        4,
        "measured: no request has shown its limit yet",
    )


@pytest.mark.parametrize("bounds", [{"min_limit": 9, "initial": 8}, {"initial": 8, "max_limit": 7}])
def test_bounds_that_cross_stop_the_start(bounds: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="min_limit <= initial <= max_limit"):
        RouterConfig(concurrency=ConcurrencyConfig(**bounds))


def test_an_engine_is_not_limited_by_a_refusal_of_the_one_that_it_replaced() -> None:
    one = core(initial=4)
    fill(one, 2)
    state = fleet(replicas=("r1",), max_concurrency=0)
    moved = msgspec.structs.replace(state.pools[0].replicas[0], url="http://127.0.0.1/another")
    one.publish(DesiredState(2, state.models, (Pool("pool", "fake", (moved,)),)))
    refuse(one, "l0")
    assert limit(one)[0] == 4
