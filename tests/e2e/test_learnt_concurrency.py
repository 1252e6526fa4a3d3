"""Two hundred streams at once through the whole platform, before an upstream that says nothing of itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
import openai
import pytest

from contracts.desired_state import Model, Pool, Replica
from contracts.generation import Tier
from tests.deployment import Deployment, deployment
from tests.fakes.process import FakeEngineProcess, fake_engine
from tests.waiting import eventually

TOKEN = "deployment-token-of-the-tests"
STREAMS = 200
Stream = openai.AsyncStream[openai.types.chat.ChatCompletionChunk]


@pytest.fixture
async def place() -> AsyncIterator[tuple[Deployment, FakeEngineProcess]]:
    """The platform, once the upstream's model answers."""
    async with fake_engine(token=TOKEN) as engine:
        pool = Pool("hosted", "openai", (Replica("hosted-1", engine.url),))
        environment = {
            "SLIPSTREAM_MODELS": msgspec.json.encode([Model("hosted", Tier.CHAT, pool.name, 4_096)]).decode(),
            "SLIPSTREAM_POOLS": msgspec.json.encode([pool]).decode(),
        }
        async with deployment(environment=environment, token=TOKEN) as platform:
            yield platform, engine


@pytest.mark.nightly
async def test_nobody_waits_before_an_upstream_that_has_nothing_to_do(
    place: tuple[Deployment, FakeEngineProcess],
) -> None:
    """All have their first token while nobody's answer has ended: places come with first tokens. The upstream takes two
    seconds for each, that a busy machine being late does not look like a queue there."""
    platform, engine = place
    async with openai.AsyncOpenAI(
        base_url=f"{platform.url}/v1", api_key=platform.key, max_retries=0, timeout=60.0
    ) as client:

        async def begin(content: str = "Hello") -> Stream:
            stream = await client.chat.completions.create(
                model="hosted", messages=[{"role": "user", "content": content}], stream=True
            )
            assert await anext(stream)
            return stream

        async def answers() -> bool:
            try:
                await (await begin()).close()
            except openai.APIStatusError:
                return False
            return True

        await engine.control(ttft_s=2.0)
        await eventually(answers)
        await engine.control(hang_after_tokens=1)
        streams = await asyncio.gather(*(begin(f"Hello {number}") for number in range(STREAMS)))
        told = await platform.command("fleet", "--explain")
        row = re.search(
            r"hosted-1 +healthy +(\d+)/(\d+) (?:.*\n)+? +hosted-1: at most \d+ requests \(measured: (.+)\)\n", told
        )
        assert row is not None, told
        leases, places, why = row.groups()
        assert int(leases) == STREAMS
        assert int(places) >= STREAMS
        assert why == "first tokens came no later than usual"
        for stream in streams:
            await stream.close()
