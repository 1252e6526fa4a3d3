"""Tokens guessed ahead are in the ledger, and in no client's usage: they are nothing a client asked for or pays."""

from __future__ import annotations

import pytest

from tests.gateway.slow_platform import SlowPlatform


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("n", [1, 2])
async def test_the_ledger_has_what_the_engine_guessed(platform: SlowPlatform, n: int, stream: bool) -> None:
    seen = await platform.ask(n=n, stream=stream, drafts=9, accepted_drafts=4)
    assert seen.status == 200
    row = await platform.charge(seen.request_id)
    assert (row["draft_tokens"], row["accepted_draft_tokens"], row["completion_tokens"]) == (9 * n, 4 * n, 4 * n)
    assert b"spec_" not in seen.body
    assert b"prediction" not in seen.body


async def test_an_engine_that_guesses_nothing_leaves_zeros(platform: SlowPlatform) -> None:
    row = await platform.charge((await platform.ask()).request_id)
    assert (row["draft_tokens"], row["accepted_draft_tokens"]) == (0, 0)
