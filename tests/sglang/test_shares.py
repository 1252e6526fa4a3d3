"""Shares before the real SGLang: of two organizations that ask for more than it does, the one with three shares is
given three times as much. Counted are answers of equally many tokens, in the order in which they ended; no times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.deployment import deployment
from tests.e2e.one_place import OnePlace
from tests.real_engine import GUARD_S
from tests.sglang.client import ENDLESS
from tests.sglang.server import SGLangServer

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(900)]
EACH, CONTESTED = 6, 8
"""Requests of each, and the first of them, while both still have some waiting."""
TOKENS = 8
LONGEST = 3_500


@pytest.fixture
async def place(sglang: SGLangServer) -> AsyncIterator[OnePlace]:
    """The session's engine, given one request at a time."""
    pool = Pool("one", "sglang", (Replica("one-1", sglang.url),), 1)
    model = Model("tiny", Tier.CHAT, pool.name, 4_096, tokenizer=str(sglang.folder))
    environment = {
        "SLIPSTREAM_MODELS": msgspec.json.encode([model]).decode(),
        "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
        "SLIPSTREAM_GATEWAY__QUEUE_DEADLINE_S": '{"chat": 600, "autocomplete": 600}',
    }
    async with deployment(environment=environment, token=sglang.token) as platform:
        made = OnePlace(platform, model.name)
        yield made
        await asyncio.gather(*(client.close() for client in made.clients.values()))


async def test_three_shares_are_given_three_times_as_much(place: OnePlace) -> None:
    limits = ("--requests-per-minute", "10000", "--tokens-per-minute", "1000000", "--max-concurrency", "100")
    small, large = [await place.platform.make_key("--organization", name, *limits) for name in ("small", "large")]
    await place.put_share("large", 300)
    answer: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 0.0, "logit_bias": ENDLESS}
    async with asyncio.timeout(3 * GUARD_S), asyncio.TaskGroup() as group:
        await place.answers(place.platform.key)
        stream = await place.hold(place.platform.key, max_tokens=LONGEST, logit_bias=ENDLESS)
        # by turns, the small one first: by arrival each would be given half
        asked = [(name, key) for _ in range(EACH) for name, key in (("small", small), ("large", large))]
        for count, (name, key) in enumerate(asked, 1):
            group.create_task(place.ask(name, key, **answer))
            await place.waiting(count)
        assert not place.served, "the engine is held"
        await stream.close()
    assert len(place.served) == 2 * EACH
    first = place.served[:CONTESTED]
    assert first.count("large") in (CONTESTED * 3 // 4 - 1, CONTESTED * 3 // 4), place.served
    told = await place.platform.command("router", "explain", place.request_ids["large"])
    assert "share 3" in told, told
