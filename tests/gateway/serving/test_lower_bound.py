"""Streams that break off: what is billed was counted last, over all choices, with each prompt once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.slow_platform import SlowPlatform


async def made(platform: SlowPlatform, request_id: str) -> dict[str, Any]:
    """What the engine recorded."""
    [record] = await platform.engine.recorded(request_id)
    return record


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["wide", "narrow"])
@pytest.mark.parametrize("n", [1, 3])
async def test_an_engine_that_dies_leaves_the_sum_of_its_choices(
    platform: SlowPlatform, n: int, model: str, stream: bool
) -> None:
    seen = await platform.ask(
        model, n=n, stream=stream, tokens=40, die_after_tokens=5, prompt_tokens=7, own_ids=n > 1, split="joined"
    )
    row = await platform.charge(seen.request_id)
    assert (await made(platform, seen.request_id))["tokens"] == 5 * n
    assert (row["prompt_tokens"], row["completion_tokens"]) == (7, 5 * n)
    # what reached nobody is recorded, and not billed
    assert (row["outcome"], row["finish"], row["billed"]) == ("lower_bound", "engine_error", stream)
    assert (row["status"], row["error_code"]) == (200 if stream else 502, "engine_failed")
    assert (b'"code":"engine_failed"' in seen.body, b"[DONE]" in seen.body) == (True, False)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dies", [False, True])
async def test_a_count_told_once_and_early_is_not_the_final_one(
    platform: SlowPlatform, dies: bool, stream: bool
) -> None:
    """It was recorded as exact, with a tenth of what was sent."""
    die_after = 30 if dies else -1
    seen = await platform.ask(
        stream=stream, tokens=30, usage_stops_after=3, prompt_tokens=7, die_after_tokens=die_after
    )
    row = await platform.charge(seen.request_id)
    # the text of the three events that told a usage is in that usage, and may be no more than it
    assert (row["prompt_tokens"], row["completion_tokens"], row["outcome"]) == (7, 27, "lower_bound")
    assert row["finish"] == ("engine_error" if dies else "complete")
    if not dies and not stream:
        assert b'"completion_tokens":27' in seen.body


@pytest.mark.parametrize("tokens", [20, 200])
async def test_a_usage_that_cannot_be_read_takes_nothing_of_what_was_told_before(
    platform: SlowPlatform, tokens: int
) -> None:
    """The request ended in a 500, and nothing was counted."""
    seen = await platform.ask(tokens=tokens, usage_unreadable_after=12, die_after_tokens=tokens - 5, prompt_tokens=7)
    row = await platform.charge(seen.request_id)
    assert (row["outcome"], row["finish"], row["billed"]) == ("lower_bound", "engine_error", True)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (7, max(12, tokens - 5 - 12))


async def test_choices_that_cannot_be_aborted_are_billed_as_far_as_they_were_seen(platform: SlowPlatform) -> None:
    await platform.engine.control(reset=True)
    async with platform.asked("wide", n=2, tokens=900, inter_token_s=0.01, prompt_tokens=7, own_ids=True) as response:
        request_id = response.headers["x-request-id"]
        read = b""
        while read.count(b'"content":" t') < 20:
            read += await response.content.readany()
        response.close()
    row = await platform.charge(request_id)
    await platform.engine.wait(disconnected=1)
    record = await made(platform, request_id)
    assert (row["outcome"], row["finish"], row["billed"]) == ("lower_bound", "client_gone", True)
    assert row["prompt_tokens"] == 7
    assert 20 <= row["completion_tokens"] <= record["tokens"] < 2 * 900
    assert record["disconnected"]


@pytest.mark.parametrize("prompt_tokens", [-50, 3_000_000_000, 9_000_000_000_000_000_000])
async def test_a_usage_that_nothing_can_hold_is_that_engines_mistake_alone(
    platform: SlowPlatform, prompt_tokens: int
) -> None:
    """It was charged to limits and missing in the ledger; of the largest, no message reached the router, nor did those
    of requests that were sent along."""
    seen = await platform.ask(stream=False, tokens=5, prompt_tokens=prompt_tokens)
    assert seen.status == 502
    row = await platform.charge(seen.request_id)
    assert (row["finish"], row["billed"]) == ("engine_error", False)
    assert 0 <= row["prompt_tokens"] < 100
    after = await platform.ask(stream=False, tokens=5, prompt_tokens=7, cached_tokens=500)
    row = await platform.charge(after.request_id)
    assert (after.status, row["prompt_tokens"], row["cached_tokens"]) == (200, 7, 7), "a part is no more than its whole"
