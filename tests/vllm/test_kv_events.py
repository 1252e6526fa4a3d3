"""The real vLLM's KV events and the router that reads them: what is stored, what was missed, what went."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from contracts.generation import TextPrompt
from contracts.prefix import BLOCK_TOKENS
from engines.drivers.vllm import VLLMDriver
from engines.http.engine_connections import EngineConnections
from tests.real_engine import RealEngine, ask
from tests.router.fakes import GUARD_S
from tests.router.kv_follower import KvFollower
from tests.vllm import server
from tests.vllm.server import VLLMProcess, VLLMServer
from tests.waiting import eventually

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(700)]
SALT = "events"
LENGTH = 300
"""Tokens of a prompt: two whole pages of vLLM's, and some that it does not share."""
SHARED = LENGTH // server.BLOCK_TOKENS * server.BLOCK_TOKENS
_numbers = itertools.count(1)


def new_prompt() -> tuple[int, ...]:
    """One that nobody has sent."""
    number = next(_numbers)
    return (number % 1_000 + 100, number // 1_000 + 100, *range(200, 198 + LENGTH))


@contextlib.asynccontextmanager
async def followed(endpoint: str, replay_endpoint: str, engine: RealEngine) -> AsyncIterator[KvFollower]:
    """A router that hears the engine."""
    made = KvFollower(endpoint, replay_endpoint)
    try:
        async with asyncio.timeout(GUARD_S):
            # a subscriber hears nothing of what was published before it had joined: the next is another prompt
            while not made.joined:
                await cached(engine, new_prompt())
        yield made
    finally:
        made.subscriptions.stop()


@pytest.fixture
async def follower(vllm: VLLMServer, engine: RealEngine) -> AsyncIterator[KvFollower]:
    """One that hears the session's."""
    async with followed(vllm.kv_events, vllm.kv_events_replay, engine) as made:
        yield made


def held(follower: KvFollower, prompt: tuple[int, ...]) -> bool:
    """Whether the router takes all of it that is shared for cached."""
    return follower.overlap(prompt, SALT) * BLOCK_TOKENS == SHARED


async def cached(engine: RealEngine, prompt: tuple[int, ...], salt: str = SALT) -> int:
    """Tokens of it that the engine had, before it has all."""
    return (await engine.usage(ask(TextPrompt((prompt,)), salt=salt, max_tokens=1))).cached_tokens


async def test_what_is_stored_is_known_under_its_salt_alone(follower: KvFollower, engine: RealEngine) -> None:
    prompt = new_prompt()
    assert await cached(engine, prompt) == 0
    await eventually(lambda: follower.overlap(prompt, SALT) * BLOCK_TOKENS == SHARED)
    assert follower.overlap(prompt, "another") == follower.overlap(prompt) == 0
    assert await cached(engine, prompt) == SHARED


async def test_what_was_missed_is_asked_for_again(follower: KvFollower, engine: RealEngine) -> None:
    before = follower.heard_repeated
    follower.drop = 3
    prompts = [new_prompt() for _ in range(6)]
    for prompt in prompts:
        await cached(engine, prompt)
    assert follower.drop == 0
    await eventually(lambda: all(follower.overlap(prompt, SALT) * BLOCK_TOKENS == SHARED for prompt in prompts))
    assert follower.heard_repeated >= before + 3


async def test_without_a_replay_a_gap_makes_the_router_forget(vllm: VLLMServer, engine: RealEngine) -> None:
    """What was evicted meanwhile would stay for ever."""
    async with followed(vllm.kv_events, "", engine) as follower:
        first, lost, after = (new_prompt() for _ in range(3))
        await cached(engine, first)
        await eventually(lambda: held(follower, first))
        follower.drop = 1
        await cached(engine, lost)
        await eventually(lambda: not follower.drop)
        await cached(engine, after)
        await eventually(lambda: held(follower, after))
        assert follower.heard_repeated == 0
        assert follower.overlap(first, SALT) == follower.overlap(lost, SALT) == 0
        assert await cached(engine, first) == SHARED, "the engine has it still"


async def test_an_engine_that_was_started_anew_has_nothing_of_before(
    another: VLLMProcess, connections: EngineConnections
) -> None:
    engine = RealEngine(VLLMDriver(), another.server.url, another.server.model, connections)
    async with followed(another.server.kv_events, another.server.kv_events_replay, engine) as follower:
        before, after = new_prompt(), new_prompt()
        await cached(engine, before)
        await eventually(lambda: held(follower, before))
        await another.kill()
        await another.start()
        # its first events are lost to a subscriber that has not come back yet, and are asked for again
        async with asyncio.timeout(GUARD_S):
            while not held(follower, after):
                after = new_prompt()
                await cached(engine, after)
        assert follower.overlap(before, SALT) == 0
        assert await cached(engine, before) == 0


async def test_what_was_thrown_out_is_forgotten(follower: KvFollower, engine: RealEngine) -> None:
    prompts = [new_prompt() for _ in range(server.BLOCKS * server.BLOCK_TOKENS // SHARED + 5)]
    for prompt in prompts:
        await cached(engine, prompt)
        await _heard(follower, prompt)
    predicted = [follower.overlap(prompt, SALT) * BLOCK_TOKENS for prompt in prompts]
    assert predicted[0] == 0, "there is no room for so many"
    # newest first: what is asked for again takes no place from those that are still to come
    held = [await cached(engine, prompt) for prompt in reversed(prompts) if follower.overlap(prompt, SALT)]
    assert held == [tokens for tokens in reversed(predicted) if tokens]


async def _heard(follower: KvFollower, prompt: tuple[int, ...]) -> None:
    await eventually(lambda: follower.overlap(prompt, SALT) * BLOCK_TOKENS == SHARED)
