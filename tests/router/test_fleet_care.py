"""Replicas that fail, hang, are slow, come back cold; reports that get lost; clocks that jump."""

from __future__ import annotations

from contracts.desired_state import DesiredState
from contracts.prefix import BLOCK_TOKENS
from router.core.breaker import FAULTS_TO_OPEN, State
from router.core.events import Cancel, GatewayDisconnected, ReplicaPolled, StatePublished, Tick
from tests.router.core_driver import Core, granted, refused
from tests.router.fakes import ask, fleet, queued

THREE = ("r1", "r2", "r3")


def test_requests_that_fail_behind_a_healthy_poll_open_the_breaker_and_one_that_succeeds_closes_it() -> None:
    core = Core(fleet(replicas=("r1",)))
    for number in range(FAULTS_TO_OPEN):
        assert core.placed(f"l{number}", organization_id=f"o{number % 2}") == "r1"
        core.over(f"l{number}", fault=True)
        core.do(ReplicaPolled("r1", True))
    replica = core.core.fleet.replicas["r1"]
    assert replica.breaker.open
    assert core.ask("waits") == [], "a trial comes: nobody is refused"
    wakeup = core.core.next_wakeup()
    assert wakeup is not None
    core.now = wakeup
    assert granted(core.do(Tick())) == ["waits"]
    assert core.ask("second") == [], "one of each tenant at a time"
    assert granted(core.over("waits")) == ["second"]
    assert replica.breaker.state is State.CLOSED


def test_a_trial_that_fails_doubles_the_pause() -> None:
    core = Core(fleet(replicas=("r1",)))
    pauses = []
    for number in range(FAULTS_TO_OPEN + 4):
        core.placed(f"l{number}", organization_id=f"o{number % 2}")
        core.over(f"l{number}", fault=True)
        core.do(ReplicaPolled("r1", True))
        breaker = core.core.fleet.replicas["r1"].breaker
        if breaker.open:
            pauses.append(breaker.opens_again_at - core.now)
            core.now = breaker.opens_again_at
            core.do(Tick())
    assert [round(pause, 6) for pause in pauses] == [1.0, 2.0, 4.0]


def test_not_all_of_a_pool_is_taken_out_for_slowness() -> None:
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=100))
    core.learn(0.0001, ("r1", "r2"), rounds=10)
    for _ in range(40):
        for name in ("r1", "r2"):
            core.served(1_000, 3.0, replica_id=name)
    assert not any(replica.breaker.open for replica in core.core.fleet.replicas.values())


def test_a_replica_that_hangs_is_avoided_before_anyone_has_given_up_on_it() -> None:
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=100))
    core.learn(0.0001, ("r1", "r2"))
    hung = core.placed("never answered", prompt_tokens=1_000)
    core.now += 5.0
    places = []
    for number in range(6):
        places.append(core.placed(f"l{number}", prompt_tokens=1_000))
        core.now += 0.11
        core.began(f"l{number}", 0.11)
    assert hung not in places


def test_a_replica_that_died_comes_back_without_its_cache() -> None:
    core = Core(fleet(replicas=("r1",)), failure_threshold=1)
    hashes = bytes(range(64))
    core.placed("l1", prompt_tokens=256, prefix_hashes=hashes)
    index = core.core.fleet.pools["pool"].index
    assert index.overlap(index.match(hashes), 0) == 4
    core.do(ReplicaPolled("r1", False, "refused"))
    core.do(ReplicaPolled("r1", True))
    assert index.overlap(index.match(hashes), 0) == 0


def test_cached_tokens_below_the_prediction_correct_the_index() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100), slos=())
    old, newer = bytes([1]) * 320, bytes([2]) * 320
    # chains whose blocks differ: the same block never stands twice in one
    old, newer = (b"".join(bytes([base, at] * 8) for at in range(20)) for base in (1, 2))
    for number, hashes in enumerate((old, newer)):
        core.placed(f"l{number}", prompt_tokens=1_280, prefix_hashes=hashes)
        core.over(f"l{number}", 1_280, 5, cached=0)
    index = core.core.fleet.pools["pool"].index
    core.placed("again", prompt_tokens=1_280, prefix_hashes=newer)
    core.over("again", 1_280, 5, cached=1_216)
    assert index.overlap(index.match(old), 0) == 20
    core.placed("evicted", prompt_tokens=1_280, prefix_hashes=newer + bytes([3] * 16))
    core.over("evicted", 1_280, 5, cached=0)
    assert index.overlap(index.match(old), 0) == 0, "used less recently than what the engine had evicted"


def test_what_engines_find_cached_behind_the_last_whole_block_is_expected_of_them() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=100), slos=())
    shared = bytes([1] * 16) + bytes([2] * 16)
    prompt = {"prompt_tokens": 300, "prefix_kind": "tokens"}
    core.placed("first", **prompt, prefix_hashes=shared)
    core.over("first", 300, 5, cached=0)
    for number in range(100):
        own = bytes([number // 16 + 3, number % 16] * 8)
        core.placed(f"l{number}", **prompt, prefix_hashes=shared + own)
        # 30 tokens of the third block, too; now and then something was evicted, or cached by somebody else
        core.over(f"l{number}", 300, 5, cached={20: 40, 40: 290}.get(number, 2 * BLOCK_TOKENS + 30))
    pool = core.core.fleet.pools["pool"]
    assert 28 <= pool.cache_reports.beyond_tokens <= 31
    core.placed("last", **prompt, prefix_hashes=shared + bytes([255] * 16))
    predicted = core.core.records.of(ask("last").request_id)[0].predicted_cached_tokens
    assert abs(predicted - (2 * BLOCK_TOKENS + 30)) <= 2


def test_lost_reports_leave_nothing_behind() -> None:
    core = Core(fleet(replicas=("r1", "r2"), max_concurrency=3), grace_s=5.0)
    core.learn(0.0001, ("r1", "r2"))
    for number in range(6):
        core.placed(f"l{number}", prompt_tokens=1_000, deadline_s=1.0)
    core.ask("waits", deadline_s=3.0)
    # no first token, no release ever comes: the deadline ends the waiting, the stream's end the leases
    core.now += 3.0
    assert [one.lease_id for one in refused(core.do(Tick()))] == ["waits"]
    core.do(Cancel(1, "l0"))
    core.do(GatewayDisconnected(1))
    core.now += 5.0
    core.do(Tick())
    for replica in core.core.fleet.replicas.values():
        assert (replica.leases, replica.prefill_tokens, len(replica.prefilling)) == (0, 0, 0)
    assert queued(core.core) == 0
    assert core.core.fleet.pools["pool"].queue.held_tokens == 0


def test_a_clock_that_jumps_ahead_expires_and_does_not_break() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    core.learn(0.0001)
    core.placed("l0", prompt_tokens=1_000)
    core.ask("waits")
    core.now += 1e7
    assert [one.lease_id for one in refused(core.do(Tick()))] == ["waits"]
    core.began("l0", 0.1)
    core.over("l0", 1_000, 5)
    assert core.served(1_000, 0.11) == "r1"
    slowness = core.core.fleet.replicas["r1"].ratio.value
    assert 0.5 < slowness < 2.0


def test_what_comes_free_after_the_deadline_is_not_for_who_waited() -> None:
    """The clock has jumped, and the release was heard before the tick."""
    core = Core(fleet(replicas=("r1",), max_concurrency=1))
    core.placed("l1")
    core.ask("late", deadline_s=1.0)
    core.ask("in time", deadline_s=9.0)
    core.now += 5.0
    decisions = core.over("l1")
    assert [one.lease_id for one in refused(decisions)] == ["late"]
    assert granted(decisions) == ["in time"]


def test_time_that_stands_still_is_no_reason_to_fail() -> None:
    core = Core(fleet(replicas=("r1",), max_concurrency=2), slos=())
    for number in range(50):
        core.placed(f"l{number}", prompt_tokens=100)
        core.began(f"l{number}", 0.0)
        core.over(f"l{number}", 100, 5)
    assert queued(core.core) == 0


def test_a_lease_of_a_pool_that_went_is_not_counted_by_one_of_its_name_that_came_back() -> None:
    core = Core(fleet(replicas=("r1",)))
    core.placed("held")
    core.do(StatePublished(DesiredState(2)))
    core.do(StatePublished(fleet(3, replicas=("r1",))))
    core.over("held")
    assert core.core.fleet.pools["pool"].queue.held_tokens == 0
