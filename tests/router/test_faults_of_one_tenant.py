"""Requests of one organization that engines fail, on purpose or not: nobody else loses an engine by them."""

from __future__ import annotations

import heapq
from collections import Counter

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contracts.pooling import Task
from router.core.avoidance import FAULTS_TO_AVOID, Avoidance
from router.core.breaker import FAULTS_COUNTED, FAULTS_TO_OPEN, Breaker, State
from router.core.decisions import Decision, Granted, PollNow, ProbeGeneration
from router.core.events import Cancel, GenerationProbed, Probe, ReplicaPolled, Tick
from router.metrics import RouterMetrics
from tests.examples import examples
from tests.router.core_driver import Core, granted
from tests.router.fakes import fleet

TWO = ("r1", "r2")


class Tenants(Core):
    """A core whose asks have a tenant. Polls find every engine healthy, as they do while requests fail."""

    def __init__(self, replicas: tuple[str, ...] = TWO, **settings: int) -> None:
        super().__init__(fleet(replicas=replicas, max_concurrency=8), "prefix", **settings)
        self.asked = 0

    def try_one(self, tenant: str, excluded: tuple[str, ...] = ()) -> tuple[str, str] | None:
        """Lease and replica; None: it waits, and is withdrawn."""
        self.asked += 1
        name = f"{tenant}-{self.asked}"
        for decision in self.ask(name, organization_id=tenant, excluded_replicas=excluded):
            if isinstance(decision, Granted):
                return name, decision.lease.engine.replica_id
        self.do(Cancel(1, name))
        return None

    def fails(self, tenant: str, replica_id: str, replicas: tuple[str, ...] = TWO) -> list[Decision]:
        """One request of a tenant fails on this replica, and a poll finds the replica healthy."""
        found = self.try_one(tenant, tuple(one for one in replicas if one != replica_id))
        assert found is not None
        assert found[1] == replica_id
        decisions = self.over(found[0], fault=True)
        self.do(ReplicaPolled(replica_id, True))
        return decisions

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (wakeup := self.core.next_wakeup()) is not None and wakeup <= until:
            self.now = max(self.now, wakeup)
            self.do(Tick())
        self.now = until
        self.do(Tick())

    def breaker(self, replica_id: str) -> Breaker:
        return self.core.fleet.replicas[replica_id].breaker


def test_a_tenant_whose_requests_always_fail_keeps_no_replica_from_others() -> None:
    """As the review did it: a burst opened both breakers for 1, 2, 4 … 60 s, and then one bad request a minute for each
    replica kept them shut."""
    core = Tenants()
    for _ in range(10):
        for _ in range(30):
            found = core.try_one("attacker")
            if found is not None:
                core.over(found[0], fault=True)
            victim = core.try_one("victim")
            assert victim is not None, "granted at once, also while the poll after a fault is under way"
            core.do(ReplicaPolled("r1", True))
            core.do(ReplicaPolled("r2", True))
            for replica_id in TWO:
                core.do(GenerationProbed(replica_id, Probe.WELL))
            core.began(victim[0])
            core.over(victim[0])
        core.wait(60.0)
    assert not any(core.breaker(one).open for one in TWO)


def test_also_when_nobody_elses_request_ends_well_in_between() -> None:
    core = Tenants()
    for number in range(200):
        core.fails("attacker", TWO[number % 2])
    assert [core.breaker(one).state for one in TWO] == [State.CLOSED] * 2
    assert core.try_one("victim") is not None


def test_a_replica_that_fails_everybody_is_out_within_five_faults() -> None:
    core = Tenants()
    for number in range(FAULTS_TO_OPEN):
        assert not core.breaker("r1").open
        core.fails(f"o{number % 3}", "r1")
    assert core.breaker("r1").open
    assert {core.placed(organization_id=f"o{number}") for number in range(6)} == {"r2"}


def test_with_one_tenant_the_engine_is_asked_itself_and_is_out_when_that_fails() -> None:
    core = Tenants()
    asked = [core.fails("only", "r1") for _ in range(FAULTS_TO_AVOID)]
    assert [ProbeGeneration("r1", "m-inside", core.core.fleet.state.models[0].tier) in each for each in asked] == [  # type: ignore[union-attr]
        False, False, True,
    ]  # fmt: skip
    assert {core.placed(organization_id="only") for _ in range(4)} == {"r2"}, "meanwhile it goes elsewhere"
    assert not core.breaker("r1").open
    core.do(GenerationProbed("r1", Probe.FAILED, "generation probe answered with 500"))
    assert core.breaker("r1").open
    assert core.placed(organization_id="another") == "r2"


def test_an_engine_that_makes_vectors_is_never_asked_to_generate() -> None:
    core = Tenants()
    state = fleet(2, replicas=TWO, max_concurrency=8)
    core.publish(
        msgspec.structs.replace(state, models=(msgspec.structs.replace(state.models[0], task=Task.EMBEDDING),))
    )
    decisions = [core.fails(f"o{number % 2}", "r1") for number in range(FAULTS_TO_OPEN)]
    assert core.breaker("r1").open
    core.now += 1.0
    decisions.append(core.do(Tick()))
    assert core.breaker("r1").half_open
    assert not any(isinstance(one, ProbeGeneration) for each in decisions for one in each)
    found = core.try_one("another", excluded=("r2",))
    assert found is not None
    core.over(found[0])
    assert core.breaker("r1").state is State.CLOSED


def test_a_tenant_that_was_failed_comes_back_with_one_lease_after_the_pause() -> None:
    core = Tenants()
    for _ in range(FAULTS_TO_AVOID):
        core.fails("unlucky", "r1")
    core.wait(0.9)
    assert core.try_one("unlucky", excluded=()) is not None
    assert {core.placed(organization_id="unlucky") for _ in range(3)} == {"r2"}
    core.wait(0.2)
    places = [core.placed(f"after-{number}", organization_id="unlucky") for number in range(4)]
    assert places.count("r1") == 1, "one lease tries"
    for number, place in enumerate(places):
        core.over(f"after-{number}", fault=place == "r1")
    core.do(ReplicaPolled("r1", True))
    core.wait(1.9)
    assert core.placed(organization_id="unlucky") == "r2", "the second pause is two seconds"
    core.wait(0.2)
    found = {core.placed(f"last-{number}", organization_id="unlucky"): f"last-{number}" for number in range(2)}
    core.over(found["r1"])
    assert "r1" not in core.core.fleet.pools["pool"].avoidance.of("unlucky")


def test_who_would_have_to_avoid_all_avoids_none_and_waits_for_nobody_in_vain() -> None:
    core = Tenants()
    for _ in range(FAULTS_TO_AVOID):
        core.fails("unlucky", "r1")
    assert core.try_one("unlucky", excluded=("r2",)) is not None, "r2 is excluded by its gateway"
    for _ in range(3):
        core.do(ReplicaPolled("r2", False, "refused"))
    assert core.placed(organization_id="unlucky") == "r1"


def test_who_waits_for_the_others_is_placed_when_the_last_of_them_dies() -> None:
    core = Tenants(failure_threshold=1)
    for _ in range(FAULTS_TO_AVOID):
        core.fails("unlucky", "r1")
    for _ in range(8):
        assert core.placed(organization_id="unlucky") == "r2"
    assert core.ask("waits", organization_id="unlucky") == []
    assert granted(core.do(ReplicaPolled("r2", False, "refused"))) == ["waits"]


def test_a_suspect_is_withheld_from_whom_it_failed_and_from_nobody_else() -> None:
    core = Tenants(("r1",))
    found = core.try_one("failed")
    assert found is not None
    assert PollNow("r1") in core.over(found[0], fault=True)
    assert core.ask("waits", organization_id="failed") == []
    assert core.try_one("other") is not None
    assert granted(core.do(ReplicaPolled("r1", True))) == ["waits"]


def opened(core: Tenants) -> None:
    """r1, by two tenants."""
    for number in range(FAULTS_TO_OPEN):
        core.fails(f"o{number % 2}", "r1", tuple(core.core.fleet.replicas))
    assert core.breaker("r1").open


def test_a_trial_is_not_spent_on_one_tenant() -> None:
    core = Tenants(("r1",))
    opened(core)
    core.wait(1.1)
    for _ in range(20):  # it fails again and again: no new pause, and the others are still tried
        core.fails("attacker", "r1", ("r1",))
    assert core.breaker("r1").state is State.HALF_OPEN
    held = core.try_one("attacker")
    assert held is not None
    assert core.try_one("attacker") is None, "one each"
    victim = core.try_one("victim")
    assert victim is not None
    core.over(victim[0])
    assert core.breaker("r1").state is State.CLOSED


def test_a_trial_is_granted_beside_long_answers_from_before() -> None:
    core = Tenants(("r1",))
    for _ in range(5):
        assert core.try_one("long") is not None
    opened(core)
    core.wait(1.1)
    assert core.try_one("victim") is not None


def test_a_trial_ends_by_a_probe_of_ours_either_way() -> None:
    for probe, state in ((Probe.WELL, State.CLOSED), (Probe.FAILED, State.OPEN), (Probe.UNCLEAR, State.HALF_OPEN)):
        core = Tenants()
        opened(core)
        core.do(GenerationProbed("r1", Probe.WELL))
        core.now = core.breaker("r1").opens_again_at
        assert any(isinstance(one, ProbeGeneration) for one in core.do(Tick()))
        core.do(GenerationProbed("r1", probe))
        assert core.breaker("r1").state is state
        assert core.breaker("r1").pause_s == (4.0 if probe is Probe.FAILED else 2.0), "a probe forgives nothing"


def test_a_late_probe_says_that_an_engine_hangs_only_if_it_answers_nobody() -> None:
    for answers in (False, True):
        core = Tenants()
        for _ in range(FAULTS_TO_AVOID):
            core.fails("attacker", "r1")
        found = core.try_one("other", excluded=("r2",))
        assert found is not None
        core.wait(30.0)
        if answers:
            core.began(found[0])
        core.do(GenerationProbed("r1", Probe.LATE, "silent"))
        assert core.breaker("r1").open is not answers


def test_probes_are_asked_one_at_a_time_with_pauses() -> None:
    core = Tenants(("r1",))
    asked = 0
    for _ in range(100):
        asked += sum(isinstance(one, ProbeGeneration) for one in core.fails("attacker", "r1", ("r1",)))
        core.do(GenerationProbed("r1", Probe.WELL))
        core.wait(0.1)
    assert 1 <= asked <= 11


@pytest.mark.parametrize(("polls", "thrown_out"), [((5, 5), 0), ((0, 2), 2), ((5, 7), 2), ((5, 1), 1), ((5, 0, 3), 3)])
def test_retractions_are_counted_from_the_first_poll_and_over_restarts(polls: tuple[int, ...], thrown_out: int) -> None:
    core = Core(fleet(replicas=("r1",)))
    for count in polls:
        core.polled(retracted=count)
    assert core.core.fleet.pools["pool"].cache_reports.safety == pytest.approx(1.25**thrown_out)
    metrics = RouterMetrics(core.core).registry
    assert metrics.get_sample_value("slipstream_router_retractions_total", {"pool": "pool"}) == thrown_out


class PlainBreaker:
    """What a breaker is after a history, told by looking at all of it again."""

    def __init__(self) -> None:
        self.history: list[tuple[float, str, str]] = []

    def state(self) -> tuple[str, float]:
        """And when its pause ends, while it is open."""
        state, begun, pause_s, ends_at = "closed", 0, 1.0, 0.0
        for at, (now, what, _) in enumerate(self.history):
            tail = self.history[begun : at + 1]
            wells = [number for number, each in enumerate(tail) if each[1] == "answered"]
            faults = Counter(who for _, each, who in tail[wells[-1] + 1 if wells else 0 :] if each == "failed")
            trips = what == "probe failed"
            if what == "failed" and state == "half_open":
                trips = len(faults) >= 2
            elif what == "failed":
                trips = sum(min(count, FAULTS_COUNTED) for count in faults.values()) >= FAULTS_TO_OPEN
            if state == "open" and what == "rested":
                state, begun = "half_open", at + 1
            elif state == "open":
                continue
            elif trips:
                state, begun, ends_at, pause_s = "open", at + 1, now + pause_s, min(2 * pause_s, 60.0)
            elif what == "answered":
                state, pause_s = "closed", 1.0
            elif what == "probe well" and state == "half_open":
                state = "closed"
        return state, ends_at


class BreakerAgainstPlain(RuleBasedStateMachine):
    """Every event to both."""

    @initialize()
    def begin(self) -> None:
        self.breaker, self.plain, self.now = Breaker(), PlainBreaker(), 0.0

    def tell(self, what: str, who: str = "") -> None:
        self.plain.history.append((self.now, what, who))

    @rule(who=st.sampled_from("aab"))
    def a_request_fails(self, who: str) -> None:
        self.breaker.failed(who, self.now)
        self.tell("failed", who)

    @rule()
    def a_request_ends_well(self) -> None:
        self.breaker.answered()
        self.tell("answered")

    @rule(well=st.booleans())
    def a_probe_ends(self, well: bool) -> None:
        self.breaker.probed(well, self.now)
        self.tell("probe well" if well else "probe failed")

    @precondition(lambda self: self.breaker.open)
    @rule()
    def the_pause_ends(self) -> None:
        self.now = self.breaker.opens_again_at
        self.breaker.rested()
        self.tell("rested")

    @rule()
    def a_second_passes(self) -> None:
        self.now += 1.0

    @invariant()
    def both_say_the_same(self) -> None:
        state, ends_at = self.plain.state()
        assert self.breaker.state.value == state
        if state == "open":
            assert self.breaker.opens_again_at == ends_at


class PlainAvoidance:
    """One organization and one replica: kept away after a history, told by looking at all of it again."""

    def __init__(self) -> None:
        self.history: list[tuple[float, str, str]] = []

    def keeps_away(self) -> bool:
        state, faults, pause_s, ends_at, trial = "trusted", 0, 1.0, 0.0, ""
        for now, what, lease in self.history:
            if what == "answered":
                state, faults, pause_s, trial = "trusted", 0, 1.0, ""
            elif what == "ended" and lease == trial:
                trial = ""
            elif what == "granted" and state == "tried" and not trial:
                trial = lease
            elif what == "rested" and state == "avoided" and ends_at <= now:
                state = "tried"
            elif what == "failed":
                faults += 1
                if state == "tried" or (state == "trusted" and faults >= FAULTS_TO_AVOID):
                    state, trial, ends_at, pause_s = "avoided", "", now + pause_s, min(2 * pause_s, 60.0)
        return state == "avoided" or trial != ""


class AvoidanceAgainstPlain(RuleBasedStateMachine):
    """Two organizations and two replicas, each with a history of its own."""

    PAIRS = st.sampled_from([(one, other) for one in "ab" for other in TWO])

    @initialize()
    def begin(self) -> None:
        self.avoidance, self.now = Avoidance(), 0.0
        self.plain = {(one, other): PlainAvoidance() for one in "ab" for other in TWO}

    @rule(
        pair=PAIRS,
        what=st.sampled_from(["failed", "failed", "granted", "ended", "answered"]),
        lease=st.sampled_from("xy"),
    )
    def something_happens(self, pair: tuple[str, str], what: str, lease: str) -> None:
        if what == "failed":
            self.avoidance.failed(*pair, self.now)
        elif what == "granted":
            self.avoidance.granted(*pair, lease)
        elif what == "ended":
            self.avoidance.ended(*pair, lease)
        else:
            self.avoidance.answered(*pair)
        self.plain[pair].history.append((self.now, what, lease))

    @rule(pair=PAIRS, seconds=st.sampled_from([0.5, 1.0, 60.0]))
    def time_passes(self, pair: tuple[str, str], seconds: float) -> None:
        self.now += seconds
        self.avoidance.rested(*pair, self.now)
        self.plain[pair].history.append((self.now, "rested", ""))

    @invariant()
    def both_say_the_same(self) -> None:
        for (tenant, replica), plain in self.plain.items() if hasattr(self, "plain") else ():
            assert (replica in self.avoidance.of(tenant)) is plain.keeps_away()


class OneTenantAgainstAll(RuleBasedStateMachine):
    """Whatever one organization's requests do, and however honest ones end, another is granted at once."""

    @initialize(replicas=st.integers(1, 3))
    def begin(self, replicas: int) -> None:
        self.names = tuple(f"r{number}" for number in range(replicas))
        self.core = Tenants(self.names)
        self.running: list[tuple[str, str]] = []
        self.due: list[tuple[float, str]] = []
        """Probes under way: they go well within a second."""

    def take(self, decisions: list[Decision]) -> None:
        for one in decisions:
            if isinstance(one, ProbeGeneration):
                heapq.heappush(self.due, (self.core.now + 0.5, one.replica_id))

    @rule(count=st.integers(1, 8))
    def attacker_asks(self, count: int) -> None:
        for _ in range(count):
            found = self.core.try_one("attacker") if len(self.running) < 5 * len(self.names) else None
            if found is not None:
                self.running.append(found)

    @rule(pick=st.integers(0, 50), fault=st.sampled_from([True, True, True, False]))
    def attackers_request_ends(self, pick: int, fault: bool) -> None:
        if self.running:
            lease_id, _ = self.running.pop(pick % len(self.running))
            self.take(self.core.over(lease_id, fault=fault))

    @rule(pick=st.integers(0, 2))
    def poll(self, pick: int) -> None:
        self.take(self.core.do(ReplicaPolled(self.names[pick % len(self.names)], True)))

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        until = self.core.now + seconds
        while self.due and self.due[0][0] <= until:
            at, replica_id = heapq.heappop(self.due)
            self.core.wait(at - self.core.now)
            self.take(self.core.do(GenerationProbed(replica_id, Probe.WELL)))
        self.core.wait(until - self.core.now)

    @rule(leaves=st.booleans())
    def a_victims_request_is_granted(self, leaves: bool) -> None:
        found = self.core.try_one("victim")
        assert found is not None, "the victim waits"
        if leaves:
            self.core.do(Cancel(1, found[0]))
        else:
            self.core.began(found[0])
            self.core.over(found[0])

    @invariant()
    def no_breaker_opens(self) -> None:
        if hasattr(self, "core"):
            assert not any(self.core.breaker(name).open for name in self.names)


class AllAgainstOneReplica(RuleBasedStateMachine):
    """A replica that fails every request is out before long, whoever asks in whatever order, and whatever polls say."""

    @initialize()
    def begin(self) -> None:
        self.core = Tenants()
        self.faults: Counter[str] = Counter()

    @rule(tenant=st.sampled_from("abcd"))
    def a_request_fails_there(self, tenant: str) -> None:
        if not self.core.breaker("r1").open:
            found = self.core.try_one(tenant, ("r2",))
            assert found is not None
            self.core.over(found[0], fault=True)
            self.core.do(ReplicaPolled("r1", True))
            self.faults[tenant] += 1

    @rule(probe=st.sampled_from([Probe.WELL, Probe.UNCLEAR]))
    def a_probe_of_one_token_tells_nothing(self, probe: Probe) -> None:
        self.core.do(GenerationProbed("r1", probe))

    @invariant()
    def it_is_out_after_five_of_which_one_tenants_first_three_count(self) -> None:
        if hasattr(self, "core"):
            counted = sum(min(count, FAULTS_COUNTED) for count in self.faults.values())
            assert self.core.breaker("r1").open is (counted >= FAULTS_TO_OPEN)


for _machine in (BreakerAgainstPlain, AvoidanceAgainstPlain, OneTenantAgainstAll, AllAgainstOneReplica):
    _machine.TestCase.settings = examples(nightly=120, gate=20, stateful_step_count=40)
test_a_breaker_is_what_its_history_makes_it = BreakerAgainstPlain.TestCase
test_an_avoidance_is_what_its_history_makes_it = AvoidanceAgainstPlain.TestCase
test_one_tenant_takes_no_replica_from_another = OneTenantAgainstAll.TestCase
test_a_replica_that_fails_all_is_out = AllAgainstOneReplica.TestCase
