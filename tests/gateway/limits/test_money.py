"""Budgets: never overshot, counted from the ledger when Valkey does not know, held by the dead until reconciled."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from contracts.errors import BudgetUnavailable, InsufficientQuota, LimiterUnavailable, RequestTooExpensive
from contracts.generation import Tier
from gateway.limits import retirement
from gateway.limits.cost import Cost
from gateway.limits.counting import Round
from gateway.limits.levels import Level, Levels, Limits
from gateway.limits.refusal import AN_HOUR_MS, BudgetReached, LimitReached
from gateway.limits.reservations import Reservation
from gateway.wire.errors import headers_of
from storage.valkey import CallTimeout
from tests.gateway.limits.ledgers import Platform, die
from tests.gateway.limits.store import AnyStore, MakeLimiter, Store, lapse
from tests.waiting import eventually


async def test_200_way_race_on_a_budget_for_one_request_has_one_winner(fleet: Platform) -> None:
    gateways = [await fleet.gateway(name) for name in "abc"]
    levels = fleet.budget(1_000)
    results = await asyncio.gather(
        *(fleet.reserve(gateways[number % 3], levels, 1_000) for number in range(200)), return_exceptions=True
    )
    assert sum(isinstance(result, Reservation) for result in results) == 1
    assert sum(isinstance(result, BudgetReached) for result in results) == 199


async def test_a_new_budget_begins_with_what_the_ledger_says(fleet: Platform) -> None:
    gateway = await fleet.gateway()
    for tier, micro in ((Tier.CHAT, 300), (Tier.AUTOCOMPLETE, 50)):
        fleet.ledger.close("a", Reservation(uuid.uuid4().hex, fleet.caller, tier, Cost()), micro)
    whole = fleet.budget(1_000, Level.PROJECT)
    with pytest.raises(BudgetReached) as caught:
        await fleet.reserve(gateway, whole, 651)
    refused = caught.value
    assert (refused.code, refused.limit.level, refused.limit.counter) == (
        "insufficient_quota",
        "project",
        "money_micro_per_month",
    )
    assert (refused.limit.remaining, refused.limit.requested, refused.limit.limit) == (650, 651, 1_000)
    assert refused.limit.subject_id == fleet.caller.project_id
    await fleet.reserve(gateway, whole, 650)
    one_tier = fleet.levels((Level.PROJECT, Tier.CHAT, Limits(money_micro_per_month=1_000)))
    await fleet.reserve(gateway, one_tier, 0)
    with pytest.raises(BudgetReached) as caught:
        await fleet.reserve(gateway, one_tier, 701)
    assert caught.value.limit.remaining == 700 - 650  # what is open counts from the day the budget is made
    assert caught.value.limit.tier == "chat"


async def test_a_budget_that_was_lifted_and_set_again_begins_with_what_the_ledger_says(fleet: Platform) -> None:
    """Fault: it went on from what had been spent before it was lifted."""
    gateway, budget = await fleet.gateway(), fleet.budget(1_000)
    await fleet.finish("a", await fleet.reserve(gateway, budget, 100), 100)
    gateway._open.fresh.clear()  # as once the change is known everywhere
    await fleet.finish("a", await fleet.reserve(gateway, Levels(), 800), 800)
    again = Levels.of(budget.organization_id, [replace(each, created_ms=1) for each in budget.rules])
    with pytest.raises(BudgetReached) as caught:
        await fleet.reserve(gateway, again, 101)
    assert caught.value.limit.remaining == 100
    await fleet.reserve(gateway, budget, 1)  # by a gateway that has not heard of it: it is not counted again
    await fleet.reserve(gateway, again, 99)
    assert gateway.metric("seeded_total", heard="all") == 2


async def test_a_budget_that_served_no_request_before_it_was_lifted_is_counted_when_it_is_set_again(
    fleet: Platform,
) -> None:
    """Fault: refusals stored no time of creation, so a budget that was spent when it was set never counted again."""
    gateway, spent = await fleet.gateway(), Reservation(uuid.uuid4().hex, fleet.caller, Tier.CHAT, Cost())
    fleet.ledger.close("a", spent, 1_000)
    with pytest.raises(BudgetReached):
        await fleet.reserve(gateway, fleet.budget(1_000), 1)
    gateway._open.fresh.clear()  # as once the change is known everywhere
    await fleet.finish("a", await fleet.reserve(gateway, Levels(), 800), 800)
    again = [replace(each, created_ms=1) for each in fleet.budget(2_000).rules]
    shown, counted = await gateway.standing(fleet.caller.organization_id, again)
    assert (shown[0].remaining, counted) == (200, True)
    with pytest.raises(BudgetReached):
        await fleet.reserve(gateway, Levels.of(fleet.caller.organization_id, again), 201)


async def test_only_what_is_free_passes_a_budget_of_nothing(fleet: Platform) -> None:
    gateway = await fleet.gateway()
    await fleet.reserve(gateway, fleet.budget(0), 0)
    with pytest.raises(InsufficientQuota, match=r"is 0 USD a month .*no request with a price is served") as caught:
        await fleet.reserve(gateway, fleet.budget(0), 1)
    assert caught.value.limit is not None
    assert (caught.value.limit.counter, caught.value.limit.frees_in_ms) == ("money_micro_per_month", None)
    assert headers_of(caught.value) == [(b"x-should-retry", b"false")]
    with pytest.raises(RequestTooExpensive):
        await fleet.reserve(gateway, fleet.budget(1), 2)


async def test_waiting_for_the_running_or_for_the_month(fleet: Platform) -> None:
    gateway = await fleet.gateway()
    levels = fleet.budget(100)
    running = await fleet.reserve(gateway, levels, 100)
    with pytest.raises(BudgetReached) as caught:
        await fleet.reserve(gateway, levels, 10)
    assert caught.value.wait_ms == 1_000  # it may be given back any moment
    await fleet.finish("a", running, 95)
    with pytest.raises(BudgetReached) as caught:
        await fleet.reserve(gateway, levels, 10)
    assert caught.value.wait_ms != 1_000  # until the month is over
    assert caught.value.limit.frees_at is not None
    assert caught.value.limit.frees_at[8:] == "01T00:00:00Z"
    reason, _, when = caught.value.message.partition(" Try again ")
    assert reason == (
        "Budget of your organization reached: 0.0001 USD a month (UTC), of which 0.000005 USD is neither spent nor "
        "reserved for running requests; this one may cost up to 0.00001 USD (prompt and largest "
        "possible output)."
    )
    in_the_last_hour = caught.value.wait_ms < AN_HOUR_MS
    assert when.startswith("in ") if in_the_last_hour else when == f"after {caught.value.limit.frees_at}."
    await fleet.reserve(gateway, levels, 5)


async def test_requests_that_run_when_a_budget_is_made_count_in_it(fleet: Platform) -> None:
    gateways = [await fleet.gateway(name) for name in "ab"]
    before = fleet.levels((Level.KEY, None, Limits(max_concurrency=10)))
    elder = await fleet.reserve(gateways[1], before, 400)
    after = fleet.levels(
        (Level.KEY, None, Limits(max_concurrency=10)), (Level.ORGANIZATION, None, Limits(money_micro_per_month=1_000))
    )
    with pytest.raises(BudgetReached):
        await fleet.reserve(gateways[0], after, 601)
    await fleet.reserve(gateways[0], after, 600)
    await fleet.finish("b", elder, 150)
    await fleet.reserve(gateways[0], after, 250)
    assert await fleet.left_micro(gateways[0], after) == 0


async def test_an_unlimited_request_counts_in_a_budget_that_is_made_meanwhile(fleet: Platform) -> None:
    gateways = [await fleet.gateway(name) for name in "ab"]
    elders = [await fleet.reserve(gateway, Levels(), 400) for gateway in gateways]
    budget = fleet.budget(1_000)
    with pytest.raises(BudgetReached):
        await fleet.reserve(gateways[0], budget, 201)
    await fleet.reserve(gateways[0], budget, 200)
    for name, elder in zip("ab", elders, strict=True):
        await fleet.finish(name, elder, 100)
    assert await fleet.left_micro(gateways[0], budget) == 1_000 - 200 - fleet.ledger.total_micro
    assert all(not gateway._open.unlimited for gateway in gateways)


@pytest.mark.parametrize("before", [Limits(), Limits(max_concurrency=10)], ids=["unlimited", "limited"])
async def test_a_request_at_a_gateway_without_the_new_budget_counts_in_it(fleet: Platform, before: Limits) -> None:
    knows, late = [await fleet.gateway(name) for name in "ab"]
    budget = fleet.levels((Level.KEY, None, before), (Level.ORGANIZATION, None, Limits(money_micro_per_month=1_000)))
    await fleet.reserve(knows, budget, 300)  # has it counted
    one, other = [await fleet.reserve(late, fleet.levels((Level.KEY, None, before)), 900) for _ in range(2)]
    await fleet.finish("b", one, 250)
    assert fleet.ledger.total_micro == 250
    assert await fleet.left_micro(knows, fleet.budget(1_000)) == 1_000 - 300 - 250 - 900
    await late.settle(other, Cost())
    assert await fleet.left_micro(knows, fleet.budget(1_000)) == 1_000 - 300 - 250
    late._open.fresh.clear()  # as once the change is known everywhere
    unknown = await fleet.reserve(late, fleet.levels((Level.KEY, None, before)), 1)
    assert unknown.calls is None or len(unknown.calls.plan.rules) == 1


async def test_lost_data_under_load_is_counted_again_exactly(own_store: Store, make_limiter: MakeLimiter) -> None:
    platform = Platform(make_limiter, own_store.url)
    for name in "abc":
        await platform.gateway(name)
    budget_micro = 150_000
    levels = platform.levels(
        (Level.ORGANIZATION, None, Limits(money_micro_per_month=budget_micro)),
        (Level.KEY, Tier.CHAT, Limits(money_micro_per_month=budget_micro * 2, max_concurrency=100)),
    )
    counts = {"admitted": 0, "refused": 0, "counting": 0}
    highest = 0

    async def load(instance: str, number: int) -> None:
        nonlocal highest
        while not counts["refused"]:
            try:
                reservation = await platform.reserve(platform.gateways[instance], levels, 100 + number)
            except BudgetReached:
                counts["refused"] += 1
            except (BudgetUnavailable, LimiterUnavailable):
                counts["counting"] += 1
                await asyncio.sleep(0.01)
            else:
                counts["admitted"] += 1
                await asyncio.sleep(0.002 * (number % 4))
                await platform.finish(instance, reservation, 60 + number)
                highest = max(highest, platform.ledger.total_micro)

    tasks = [asyncio.create_task(load(name, number)) for name in "abc" for number in range(6)]
    with own_store.client() as client:
        for target in (300, 900):
            await eventually(lambda target=target: counts["admitted"] > target)  # type: ignore[misc]
            client.flushall()
    await asyncio.gather(*tasks)
    assert highest == platform.ledger.total_micro <= budget_micro  # overshoot 0, over two losses
    assert platform.ledger.total_micro > budget_micro - 18 * 200  # and it was really used up
    gateway = platform.gateways["a"]
    assert await platform.left_micro(gateway, levels) == budget_micro - platform.ledger.total_micro
    assert sum(each.metric("seeded_total", heard="all") for each in platform.gateways.values()) >= 4
    assert all(each.metric("seeded_total", heard="without") == 0 for each in platform.gateways.values())
    assert all(each.open_reservations == 0 for each in platform.gateways.values())


async def test_nothing_is_spent_while_the_ledger_or_a_gateway_cannot_be_heard(
    store: AnyStore, make_limiter: MakeLimiter
) -> None:
    platform = Platform(make_limiter, store.url, seed_wait_s=0.1)
    gateway, other = await platform.gateway("a"), await platform.gateway("b")
    levels = platform.budget(1_000)
    platform.ledger.away = True
    with pytest.raises(BudgetUnavailable) as caught:
        await platform.reserve(gateway, levels, 1)
    assert caught.value.retry_after_s is not None
    await platform.reserve(gateway, levels, 0)  # what costs nothing is not held up
    platform.ledger.away = False
    platform.ledger.close("b", Reservation(uuid.uuid4().hex, platform.caller, Tier.CHAT, Cost()), 990)
    await die(other)  # with a closed attempt on its disk that is not in the ledger
    with pytest.raises(BudgetUnavailable):
        await platform.reserve(gateway, levels, 11)
    await platform.gateway("b")  # starts again, ships, is heard

    async def refused() -> BudgetReached | None:
        try:
            await platform.reserve(gateway, levels, 11)
        except BudgetUnavailable:
            return None
        except BudgetReached as reached:
            return reached
        raise AssertionError("more is spent than there is")

    found = await eventually(refused)
    assert found is not None
    assert found.limit.remaining == 10


async def test_a_gateway_that_never_answers_is_left_out_loudly(store: AnyStore, make_limiter: MakeLimiter) -> None:
    platform = Platform(make_limiter, store.url, seed_wait_s=30, seed_patience_s=0.2)
    gateway = await platform.gateway("a")
    platform.ledger.joined["gone"] = "gone.1"
    await platform.reserve(gateway, platform.budget(1_000), 1)
    assert gateway.metric("seeded_total", heard="without") == 1


async def test_a_dead_gateways_rates_and_places_lapse_and_its_money_stays(store: AnyStore, fleet: Platform) -> None:
    dead, alive = await fleet.gateway("a"), await fleet.gateway("b")
    levels = fleet.levels(
        (Level.ORGANIZATION, None, Limits(money_micro_per_month=1_000, max_concurrency=2, tokens_per_day=100)),
    )
    finished, running = [await fleet.reserve(dead, levels, 300, tokens=50) for _ in range(2)]
    await die(dead)
    with pytest.raises(LimitReached):
        await fleet.reserve(alive, levels, 0, tokens=100)
    with store.client() as client:
        lapse(client, fleet.caller.organization_id, "a")
    probe = await fleet.reserve(alive, levels, 0, tokens=100)
    await alive.settle(probe, Cost())
    assert await fleet.left_micro(alive, levels) == 400  # two times 300 are still held
    # its journal knows one of them; the other never ran
    fleet.ledger.close("a", finished, 120)
    again = await fleet.gateway("a")
    await eventually(lambda: again.metric("retired_total") == 2)
    await again.reconciled("a")
    assert again.metric("retired_total") == 2
    await fleet.reserve(alive, levels, 1)
    assert await fleet.left_micro(alive, levels) == 1_000 - 120 - 1
    assert running.id not in fleet.ledger.rows


async def test_a_dead_runs_money_is_freed_though_valkey_does_not_answer_at_first(
    fleet: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault: one call without an answer, and the money stayed reserved until the gateway's next start."""
    dead, levels, end_runs, tries = await fleet.gateway("a"), fleet.budget(1_000), retirement.end_runs, 0
    await fleet.reserve(dead, levels, 700)
    await die(dead)

    async def late_at_first(*values: Any) -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise CallTimeout("no answer in time")
        return await end_runs(*values)

    monkeypatch.setattr(retirement, "end_runs", late_at_first)
    again = await fleet.gateway("a", lease_s=0.3)
    await eventually(lambda: again.metric("retired_total") == 1)
    await fleet.reserve(again, levels, 1_000)


async def test_an_adopted_journal_frees_its_gateways_money(fleet: Platform) -> None:
    dead, adopter = await fleet.gateway("a"), await fleet.gateway("b")
    levels = fleet.budget(1_000)
    await fleet.reserve(dead, levels, 700)
    await die(dead)
    await adopter.adopted("a")
    await fleet.reserve(adopter, levels, 1_000)
    assert set(fleet.ledger.joined) == {"b"}


async def test_a_round_whose_end_a_crash_of_valkey_lost_keeps_no_budget_waiting(
    own_store: Store, make_limiter: MakeLimiter
) -> None:
    """Fault: the next recount waited for the round's leader, which had ended it, for longer than a minute."""
    platform = Platform(make_limiter, own_store.url)
    leader, other = [await platform.gateway(name) for name in "ab"]
    levels = platform.budget(1_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader._counting, "_send", lambda *_: None)
        made = await platform.reserve(leader, levels, 10)
    assert made.calls is not None
    leader._doubt([rule.key for rule in made.calls.plan.money_rules])
    await leader.drain()
    await platform.reserve(other, levels, 10)
    with own_store.client() as client:
        assert await eventually(lambda: not client.hgetall(leader._counting._rounds_key))


async def test_a_leader_does_not_end_the_round_of_the_one_that_replaced_it(
    own_store: Store, make_limiter: MakeLimiter
) -> None:
    """Fault: a leader that was slow, or that saw its round a moment after its end, removed its successor's: no other
    gateway answered that round, and their journals were missing in its sum."""
    platform = Platform(make_limiter, own_store.url)
    leader = await platform.gateway("a")
    levels = platform.budget(1_000)
    made = await platform.reserve(leader, levels, 10)
    assert made.calls is not None
    (rule,) = made.calls.plan.money_rules
    counting = leader._counting
    led, successors = (Round(token, levels.organization_id, rule) for token in ("led", "successors"))
    with own_store.client() as client:
        client.hset(counting._rounds_key, rule.key, msgspec.json.encode(successors))
        counting._end(led)
        await counting._call("PING")
        assert client.hget(counting._rounds_key, rule.key) == msgspec.json.encode(successors)
        counting._end(successors)
        await counting._call("PING")
        assert not client.hgetall(counting._rounds_key)


async def test_without_valkey_no_more_is_spent_than_the_local_share(
    own_store: Store, make_limiter: MakeLimiter
) -> None:
    settings = {"when_unavailable": "local", "expected_instances": 2, "local_money_percent": 10}
    platform = Platform(make_limiter, own_store.url, **settings)
    gateways = [await platform.gateway(name) for name in "ab"]
    levels = platform.budget(1_000)
    first = await platform.reserve(gateways[0], levels, 900)
    await platform.finish("a", first, 900)
    own_store.kill()
    await eventually(lambda: not any(gateway.connected for gateway in gateways))
    admitted = []
    for name, gateway in platform.gateways.items():
        for _ in range(20):
            try:
                admitted.append((name, await platform.reserve(gateway, levels, 10)))
            except (BudgetReached, LimiterUnavailable):
                continue
    assert len(admitted) == 10  # 10 % of 1,000, in two shares of 50
    for name, reservation in admitted[1:]:
        await platform.finish(name, reservation, 10)
    own_store.start()
    for gateway in gateways:
        await gateway.wait_connected()
    with pytest.raises(BudgetReached) as caught:
        await platform.reserve(gateways[0], levels, 91)
    assert caught.value.limit.remaining == 0
    await platform.finish(*admitted[0], 10)
    assert await platform.left_micro(gateways[1], levels) == 1_000 - platform.ledger.total_micro == 0


async def test_without_valkey_and_without_a_share_only_what_is_free_passes(
    make_limiter: MakeLimiter, own_store: Store
) -> None:
    platform = Platform(make_limiter, own_store.url, when_unavailable="local")
    gateway = await platform.gateway()
    own_store.kill()
    await eventually(lambda: not gateway.connected)
    await platform.reserve(gateway, platform.budget(1_000), 0)
    with pytest.raises(LimiterUnavailable):
        await platform.reserve(gateway, platform.budget(1_000), 1)


async def test_each_threshold_is_reported_once_a_month_by_whichever_gateway_reaches_it(fleet: Platform) -> None:
    gateways = [await fleet.gateway(name) for name in "ab"]
    levels = fleet.budget(1_000)
    reported = fleet.ledger.crossings

    async def spend(number: int, micro: int) -> None:
        name = "ab"[number % 2]
        await fleet.finish(name, await fleet.reserve(gateways[number % 2], levels, micro), micro)

    await spend(0, 499)
    assert reported == []
    fleet.ledger.away = True  # it cannot be recorded: the next settlement says it again
    await spend(1, 1)
    fleet.ledger.away = False
    await spend(0, 10)
    await eventually(lambda: [each.percent for each in reported] == [50])
    await asyncio.gather(*(spend(number, 29) for number in range(10)))
    await eventually(lambda: [each.percent for each in reported] == [50, 80])
    await spend(0, 200)
    await eventually(lambda: [each.percent for each in reported] == [50, 80, 100])
    assert {each.organization_id for each in reported} == {fleet.caller.organization_id}


async def test_a_raised_budget_warns_again_at_any_gateway(fleet: Platform) -> None:
    gateways = {name: await fleet.gateway(name) for name in "ab"}
    reported = fleet.ledger.crossings

    async def spend(name: str, budget: int, micro: int) -> list[tuple[int, int]]:
        await fleet.finish(name, await fleet.reserve(gateways[name], fleet.budget(budget), micro), micro)
        return [(each.percent, each.limit_micro) for each in reported]

    await spend("a", 1_000, 1_000)
    await eventually(lambda: len(reported) == 3)
    await spend("b", 2_000, 500)  # half of it was spent when it was raised
    await spend("a", 2_000, 100)
    await eventually(lambda: len(reported) == 4)
    assert await spend("b", 2_000, 100) == [(50, 1_000), (80, 1_000), (100, 1_000), (80, 2_000)]


async def test_the_first_refusal_for_money_is_told_and_one_that_running_requests_cause_is_not(fleet: Platform) -> None:
    gateway = await fleet.gateway("a")
    levels = fleet.budget(400)
    reported = fleet.ledger.crossings
    running = await fleet.reserve(gateway, levels, 390)
    with pytest.raises(BudgetReached):  # it may be back in a moment
        await fleet.reserve(gateway, levels, 20)
    await fleet.finish("a", running, 190)
    fleet.ledger.away = True  # it cannot be recorded: the next refusal says it again
    for _ in range(3):
        with pytest.raises(BudgetReached):
            await fleet.reserve(gateway, levels, 300)
        fleet.ledger.away = False
        await asyncio.sleep(0)  # lets the failed record end
    await eventually(lambda: len(reported) == 1)
    (told,) = reported
    assert (told.refused, told.percent, told.spent_micro, told.limit_micro) == (True, 47, 190, 400)
    await fleet.finish("a", await fleet.reserve(gateway, levels, 20), 20)  # thresholds are told as ever
    await eventually(lambda: [each.percent for each in reported] == [47, 50])


async def test_a_store_that_restarts_from_older_data_is_counted_anew_and_nothing_stays_open(
    own_store: Store, make_limiter: MakeLimiter
) -> None:
    platform = Platform(make_limiter, own_store.url, stray_s=0.1)
    gateway = await platform.gateway()
    levels = platform.levels((Level.ORGANIZATION, None, Limits(money_micro_per_month=1_000, max_concurrency=10)))
    kept = await platform.reserve(gateway, levels, 200)
    settled_later = await platform.reserve(gateway, levels, 300)
    with own_store.client() as client:
        organization = platform.caller.organization_id
        before = {key: client.dump(key) for key in client.keys(f"slipstream:{{{organization}}}:*")}
        await platform.finish("a", settled_later, 90)
        reserved_later = await platform.reserve(gateway, levels, 100)
        own_store.kill()
        await eventually(lambda: not gateway.connected)
        own_store.start()
        # as if the last second had not been written
        for key in client.keys(f"slipstream:{{{organization}}}:*"):
            client.delete(key)
        for key, value in before.items():
            client.restore(key, 0, value)
        await gateway.wait_connected()
        gateway._open.reconnected(restarted=True)  # as it does itself on connecting, which was before the restore
    assert await platform.reserve(gateway, levels, 1)
    await eventually(lambda: gateway.metric("retired_total") == 1)
    await platform.reserve(gateway, levels, 1)
    assert await platform.left_micro(gateway, levels) == 1_000 - 200 - 90 - 100 - 2
    assert (await gateway.left(levels, Tier.CHAT))[4] == 4
    for reservation in (kept, reserved_later):
        await platform.finish("a", reservation, 10)
    assert await platform.left_micro(gateway, levels) == 1_000 - 90 - 20 - 2


async def test_a_gateway_that_the_others_do_not_know_of_spends_nobodys_money(
    store: AnyStore, make_limiter: MakeLimiter, fleet: Platform
) -> None:
    first = await fleet.gateway("a")
    levels = fleet.budget(1_000)
    await fleet.reserve(first, levels, 1)  # the budget is counted
    fleet.ledger.away = True
    unknown = await make_limiter(
        store.url, instance="b", spending=fleet.ledger, drain=lambda timeout_s: fleet.ledger.ship("b")
    )
    with pytest.raises(BudgetUnavailable):
        await fleet.reserve(unknown, levels, 1)
    await fleet.reserve(unknown, levels, 0)
    fleet.ledger.away = False
