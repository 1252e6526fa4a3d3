"""Classes and shares at a full pool: who wins by its own measure, and that what yields costs others no promise."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from contracts.service_class import ServiceClass
from router.core.fair_queue import FairQueue
from router.core.reasons import Reason
from router.core.split_costs import _queue_s
from router.core.state import QueuedRequest
from tests.router.core_driver import Core, granted, refused
from tests.router.fakes import ask, fleet

OFFLINE, STANDARD, INTERACTIVE = (each.priority for each in ServiceClass)
ONE = {"organization_id": "one"}


def saturated(
    askers: dict[str, dict[str, Any]], grants: int, *, backlog: int = 4
) -> tuple[list[str], dict[str, float]]:
    """Everybody always has `backlog` asks waiting for one engine with one place; a grant takes 0.1 s.

    Who was granted, in order; and the mean time that each waited. askers: fields of an ask by name.
    """
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    asked_at: dict[str, float] = {}
    numbers = Counter[str]()

    def ask(name: str) -> list[str]:
        numbers[name] += 1
        lease_id = f"{name}-{numbers[name]}"
        asked_at[lease_id] = core.now
        return granted(core.ask(lease_id, deadline_s=1e6, **{**ONE, **askers[name]}))

    core.placed("first", organization_id="first")
    for name in askers:
        for _ in range(backlog):
            assert not ask(name)
    order, waited = [], dict.fromkeys(askers, 0.0)
    running = "first"
    for _ in range(grants):
        core.now += 0.1
        (running,) = granted(core.over(running))
        name = running.rsplit("-", 1)[0]
        order.append(name)
        waited[name] += core.now - asked_at[running]
        ask(name)
    counts = Counter(order)
    return order, {name: waited[name] / counts[name] for name in askers if counts[name]}


def test_interactive_waits_less_than_the_same_requests_do_without_a_class() -> None:
    others = {f"other-{number}": {"organization_id": f"o{number}"} for number in range(3)}
    _, alike = saturated({"web": {"organization_id": "web"}, **others}, 200)
    _, first = saturated({"web": {"organization_id": "web", "priority": INTERACTIVE}, **others}, 200)
    # its four asks stand behind each other alone, and no more behind the twelve of the others
    assert first["web"] < 0.3 * alike["web"]


def test_offline_gets_nothing_while_others_wait_and_everything_when_they_do_not() -> None:
    order, _ = saturated({"batch": {"priority": OFFLINE}, "web": {}}, 50)
    assert set(order) == {"web"}
    order, _ = saturated({"batch": {"priority": OFFLINE}}, 50)
    assert set(order) == {"batch"}


@pytest.mark.parametrize("priority", [OFFLINE, STANDARD, INTERACTIVE])
def test_organizations_are_given_tokens_by_their_shares(priority: int) -> None:
    large: dict[str, Any] = {"organization_id": "large", "share": 3.0, "priority": priority}
    small: dict[str, Any] = {"organization_id": "small", "share": 1.0, "priority": priority}
    counts = Counter(saturated({"large": large, "small": small}, 400)[0])
    assert abs(counts["large"] - 300) <= 2, "of 400 like requests, within two grants"


def test_projects_divide_what_their_organization_is_given_and_no_more() -> None:
    askers: dict[str, dict[str, Any]] = {
        "main": {"project_id": "main", "project_share": 3.0},
        "side": {"project_id": "side", "project_share": 1.0},
        "other": {"organization_id": "two"},
    }
    counts = Counter(saturated(askers, 800)[0])
    assert abs(counts["other"] - 400) <= 2, "two projects are one organization"
    assert abs(counts["main"] - 300) <= 3
    assert abs(counts["side"] - 100) <= 3


def test_a_refusal_of_what_yields_is_none_of_the_pools_and_comes_first() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1), queue_length=2)
    core.placed("running")
    assert core.ask("batch", priority=OFFLINE, **ONE) == core.ask("web") == []
    (shed,) = refused(core.ask("more"))
    assert (shed.lease_id, shed.over_share) == ("batch", False)
    assert shed.retry_after_s
    sheds = core.core.placer.sheds
    assert (sheds.yielding, sheds.refusals, sheds.ratio) == ({"chat": 1}, {}, {"chat": 0.0})


def test_what_yields_makes_nobody_hold_more_than_its_share() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=8))
    (pool,) = core.core.fleet.pools.values()
    queue = pool.queue
    core.placed("web", organization_id="web", prompt_tokens=1_000)
    assert not queue.over_share(queue.tenant("web"))
    core.now += 0.1
    core.began("web")
    core.placed("batch", organization_id="batch", priority=OFFLINE)
    assert not queue.over_share(queue.tenant("web")), "nobody else is active"
    assert (queue.held_tokens, queue.waiting_tokens) == (1_010, 0)
    assert list(queue.active) == ["web"]


def test_beside_others_offline_leaves_a_tenth_and_is_in_front_of_nobodys_prompt() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=10))
    core.placed("web")
    core.ask("batch-0", priority=OFFLINE, **ONE)
    (pool,) = core.core.fleet.pools.values()
    assert [one.why for one in pool.queue] == [Reason.YIELDS]
    assert granted(core.began("web")) == ["batch-0"], "no prompt is in front any more"
    for number in range(1, 12):
        core.began(f"batch-{number - 1}")
        core.ask(f"batch-{number}", priority=OFFLINE, **ONE)
    assert core.core.fleet.replicas["r1"].leases == 9
    assert core.placed("web again") == "r1", "the tenth is for who waits"


def test_a_projects_account_is_forgotten_when_it_has_not_waited_for_long() -> None:
    tenant = FairQueue().tenant("one")
    for number in range(1_000):
        tenant.project(str(number))
    assert len(tenant.projects) <= 66


def test_the_record_names_class_and_shares() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    core.placed("web", priority=INTERACTIVE, share=3.0, project_share=0.5)
    (record,) = core.core.records.of("req_web")
    assert (record.service_class, record.share, record.project_share) == ("interactive", 3.0, 0.5)
    core.ask("batch", priority=OFFLINE, deadline_s=0.0)
    (record,) = core.core.records.of("req_batch")
    assert (record.service_class, record.refused != "") == ("offline", True)


def test_who_passes_waiting_offline_requests_at_once_is_no_measure_of_the_wait() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=4))
    core.placed("web-0", **ONE)
    assert not core.ask("batch", priority=OFFLINE, deadline_s=1e6, **ONE)
    for number in range(1, 40):
        core.now += 1.0
        core.placed(f"web-{number}", **ONE)
        core.over(f"web-{number - 1}")
    (pool,) = core.core.fleet.pools.values()
    assert not pool.wait_estimator.known


def test_the_turns_of_offline_requests_do_not_delay_the_expected_turn_of_others() -> None:
    """Offline requests wait for a moment without a prompt on the engine, and others go past them."""
    core = Core(fleet(replicas=("r1",), max_concurrency=4), slos=())
    core.placed("web-0", **ONE)
    for number in range(30):
        assert not core.ask(f"batch-{number}", priority=OFFLINE, **ONE)
        core.now += 5.0
        assert granted(core.began(f"web-{number}", 0.1)) == [f"batch-{number}"]
        core.began(f"batch-{number}", 0.1)
        core.over(f"batch-{number}")
        core.over(f"web-{number}")
        core.placed(f"web-{number + 1}", **ONE)
    assert not core.ask("batch", priority=OFFLINE, **ONE)
    for number in range(3):
        core.placed(f"full-{number}", **ONE)
    assert [core.ask(f"burst-{number}", deadline_s=30.0, **ONE) for number in range(20)] == [[]] * 20


def test_interactive_requests_ahead_of_an_offline_one_are_not_counted_as_offline_turns() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=4), slos=())
    core.placed("web-0", **ONE)
    for number in range(30):
        assert not core.ask(f"batch-{number}", priority=OFFLINE, **ONE)
        core.now += 5.0
        assert granted(core.began(f"web-{number}", 0.1)) == [f"batch-{number}"]
        core.began(f"batch-{number}", 0.1)
        core.over(f"batch-{number}")
        core.over(f"web-{number}")
        core.placed(f"web-{number + 1}", **ONE)
    for number in range(3):
        core.placed(f"full-{number}", **ONE)
    assert not core.ask("batch", priority=OFFLINE, deadline_s=30.0, **ONE)
    assert [core.ask(f"burst-{number}", deadline_s=30.0, **ONE) for number in range(10)] == [[]] * 10
    assert not core.ask("another", priority=OFFLINE, deadline_s=30.0, **ONE)


def test_a_waiting_offline_request_delays_no_other_in_the_comparison_with_a_pair() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=4), slos=())
    core.placed("web", **ONE)
    assert not core.ask("batch", priority=OFFLINE, **ONE)
    (pool,), model = core.core.fleet.pools.values(), core.core.fleet.model("m")
    assert model is not None
    assert _queue_s(pool, QueuedRequest(core.core.connections[1], ask("next"), model, core.now)) == 0.0
