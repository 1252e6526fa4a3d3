"""Phases through real processes: a delay in one part of the path is in that part's phase, and header, row and histogram
say the same. That it is in no other phase is tests/gateway/serving/test_phase_partition.py's, where time stands still.

Nothing is asserted to be quick: a delay is the least that a phase may say.
"""

from __future__ import annotations

import msgspec
import pytest

from contracts.phases import Phase
from tests.gateway.slow_platform import Seen, SlowPlatform

DELAY_S = 0.1
MIN_MS = DELAY_S * 1e3 * 0.95
"""A timer may end a little early by another clock."""
AT_FIRST_BYTE = {"auth", "limit", "queue", "route", "engine"}


async def check(platform: SlowPlatform, seen: Seen, *delayed: Phase) -> None:
    """These phases have the delay, all phases together are the whole, and header and row agree."""
    assert seen.status == 200, seen.body
    row = await platform.trace(seen.request_id)
    phases_ms = row["phases_ms"]
    assert set(phases_ms) == {phase.value for phase in Phase}
    assert {phase: phases_ms[phase] for phase in delayed if phases_ms[phase] < MIN_MS} == {}, phases_ms
    assert sum(phases_ms.values()) == pytest.approx(row["total_ms"], abs=0.02)
    assert seen.timing_ms.items() <= phases_ms.items()
    assert set(seen.timing_ms) == AT_FIRST_BYTE
    assert (row["status"], row["error_code"], row["client_request_id"]) == (200, None, "named by the client")


async def test_auth_holds_the_look_up_of_a_key(platform: SlowPlatform) -> None:
    unknown = await platform.add_key()
    async with platform.links["postgres"].delayed(DELAY_S):
        seen = await platform.ask(key=unknown.secret)
    await check(platform, seen, Phase.AUTH)


async def test_limit_holds_the_reservation_and_stream_its_settlement(platform: SlowPlatform) -> None:
    async with platform.links["valkey"].delayed(DELAY_S):
        seen = await platform.ask()
    await check(platform, seen, Phase.LIMIT, Phase.STREAM)


async def test_route_holds_the_way_to_the_router(platform: SlowPlatform) -> None:
    async with platform.links["router"].delayed(DELAY_S):
        seen = await platform.ask()
    await check(platform, seen, Phase.ROUTE)


async def test_engine_holds_the_way_to_the_engine(platform: SlowPlatform) -> None:
    async with platform.links["engine"].delayed(DELAY_S):
        seen = await platform.ask()
    await check(platform, seen, Phase.ENGINE)


async def test_what_the_engine_takes_is_in_its_three_phases(platform: SlowPlatform) -> None:
    """Which of them has how much is by when the gateway reads, and a busy one reads late."""
    seen = await platform.ask(ttft_s=DELAY_S, text_gap_s=DELAY_S, tokens=11, inter_token_s=DELAY_S / 10)
    await check(platform, seen, Phase.ENGINE)
    phases_ms = (await platform.trace(seen.request_id))["phases_ms"]
    assert sum(phases_ms[phase] for phase in (Phase.ENGINE, Phase.FIRST_TOKEN, Phase.DECODE)) >= 3 * MIN_MS


async def test_stream_holds_the_commit_to_the_journal(platform: SlowPlatform) -> None:
    with platform.slow_disk(DELAY_S):
        seen = await platform.ask()
    await check(platform, seen, Phase.STREAM)


async def test_a_whole_answer_says_in_its_header_all_but_its_last_phase(platform: SlowPlatform) -> None:
    seen = await platform.ask(stream=False)
    phases_ms = (await platform.trace(seen.request_id))["phases_ms"]
    assert seen.timing_ms == {name: spent_ms for name, spent_ms in phases_ms.items() if name != Phase.STREAM}


async def test_histograms_get_every_phase_by_tier(platform: SlowPlatform) -> None:
    for model, tier, other in (("wide", "chat", "autocomplete"), ("narrow", "autocomplete", "chat")):
        before = await platform.phase_sums()
        seen = await platform.ask(model)
        phases_ms = (await platform.trace(seen.request_id))["phases_ms"]
        after = await platform.phase_sums()
        for phase in Phase:
            assert after[tier, phase, "count"] == before[tier, phase, "count"] + 1
            assert after[other, phase, "count"] == before[other, phase, "count"]
            spent_s = after[tier, phase, "sum"] - before[tier, phase, "sum"]
            assert spent_s * 1e3 == pytest.approx(phases_ms[phase], abs=0.01)


async def test_a_refused_request_has_the_phases_it_reached(platform: SlowPlatform) -> None:
    seen = await platform.ask(status=400)
    row = await platform.trace(seen.request_id)
    assert (seen.status, row["status"], row["error_code"]) == (400, 400, "engine_refused")
    assert set(row["phases_ms"]) == AT_FIRST_BYTE | {"stream"}
    assert sum(row["phases_ms"].values()) == pytest.approx(row["total_ms"], abs=0.02)


async def test_the_command_line_shows_the_whole_by_request_id(platform: SlowPlatform) -> None:
    seen = await platform.ask(tokens=7)
    trace, charge = await platform.trace(seen.request_id), await platform.charge(seen.request_id)
    shown = await platform.command("requests", "show", seen.request_id)
    assert f"{trace['total_ms']:,.1f} ms in all" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert [row for row in rows if len(row) == 3 and row[2] == "ms"] == [
        [phase.value, f"{trace['phases_ms'][phase]:,.2f}", "ms"] for phase in Phase
    ]
    assert f"{charge['prompt_tokens']:,} prompt tokens" in shown
    assert "7 generated; exact, complete, billed" in shown
    assert "the client called it 'named by the client'" in shown
    as_json = msgspec.json.decode(await platform.command("requests", "show", "--json", seen.request_id))
    assert as_json["trace"]["phases_ms"] == trace["phases_ms"]
    assert [attempt["completion_tokens"] for attempt in as_json["attempts"]] == [7]
